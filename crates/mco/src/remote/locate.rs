//! The place of the kubeconfig: flags first, then the environment, then default files.

use std::path::{Path, PathBuf};

use mco_cluster::client::Environment;

use super::{Connection, DEFAULT_DIR, kubeconfig};

/// The place where the cluster is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClusterSource {
    /// Kubeconfigs, which are merged.
    Files(Vec<PathBuf>),
    /// The service account of the pod of this process.
    Pod,
}

/// Returns the place of the cluster; `None` if there is none.
///
/// The cluster of `mco up` in the present directory comes before that of the home directory, even if it
/// is stopped: a command that is meant for it must not change another cluster.
pub(super) fn locate(
    flags: &Connection,
    environment: &Environment,
    exists: impl Fn(&Path) -> bool,
) -> Option<ClusterSource> {
    let existing = |path: PathBuf| exists(&path).then(|| ClusterSource::Files(vec![path]));
    if let Some(file) = flags.kubeconfig.as_ref().filter(|file| !file.as_os_str().is_empty()) {
        return Some(ClusterSource::Files(vec![file.clone()]));
    }
    if let Some(dir) = &flags.dir {
        return existing(kubeconfig(dir));
    }
    let files = environment.kubeconfigs();
    if !files.is_empty() {
        return Some(ClusterSource::Files(files));
    }
    existing(kubeconfig(Path::new(DEFAULT_DIR)))
        .or_else(|| existing(environment.home.as_ref()?.join(".kube/config")))
        .or_else(|| environment.service_host.is_some().then_some(ClusterSource::Pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_before_the_environment_and_the_environment_before_default_files() {
        let flags = |kubeconfig: &str, dir: &str| {
            let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
            Connection { kubeconfig: path(kubeconfig), dir: path(dir), ..Connection::default() }
        };
        let environment = |kubeconfig: &str, pod: bool| Environment {
            kubeconfig: (!kubeconfig.is_empty()).then(|| kubeconfig.into()),
            home: Some("/home/user".into()),
            service_host: pod.then(|| "10.0.0.1".into()),
        };
        let (toy, home) = (".mco/kubeconfig", "/home/user/.kube/config");
        let rows = [
            (flags("a", ""), environment("/env", true), vec![toy, home], Some("a")),
            (flags("", "d"), environment("/env", true), vec!["d/kubeconfig"], Some("d/kubeconfig")),
            // A wrong --dir is an error, and no reason to use another cluster.
            (flags("", "d"), environment("/env", true), vec![toy, home], None),
            (flags("", ""), environment("/env:/more", true), vec![toy], Some("/env /more")),
            (flags("", ""), environment("", true), vec![toy, home], Some(toy)),
            (flags("", ""), environment("", true), vec![home], Some(home)),
            (flags("", ""), environment("", true), vec![], Some("pod")),
            (flags("", ""), environment("", false), vec![], None),
        ];
        for (flags, environment, files, want) in rows {
            let exists = |path: &Path| files.iter().any(|file| Path::new(file) == path);
            let found = locate(&flags, &environment, exists).map(|source| match source {
                ClusterSource::Pod => "pod".to_owned(),
                ClusterSource::Files(files) => {
                    let files = files.iter().map(|file| file.display().to_string());
                    files.collect::<Vec<_>>().join(" ")
                }
            });
            assert_eq!(found.as_deref(), want, "{flags:?} {environment:?} {files:?}");
        }
    }
}
