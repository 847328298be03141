//! Locates the programs of a real Kubernetes, or reports the missing one.

#![expect(clippy::disallowed_methods, reason = "looks for programs where scripts/kube puts them")]

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

/// The module that `scripts/kube` builds the programs from. Contains their version.
const MODULE: &str = include_str!("../../kube/go.mod");

/// The version of Helm that `scripts/helm` builds.
const HELM_VERSION: &str = include_str!("../../kube/helm-version");

/// The programs of a real Kubernetes.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    etcd: PathBuf,
}

/// A missing program, as a one-line message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingProgram(String);

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Programs {
    /// Finds etcd, and the programs that `scripts/kube` builds.
    pub fn find() -> Result<Self, MissingProgram> {
        let folder = cache().join(format!("kube-{}", version()));
        for program in ["kube-apiserver", "kubectl"] {
            if !folder.join(program).is_file() {
                let folder = folder.display();
                return Err(MissingProgram(format!(
                    "{program} is not in {folder} (`make tools` builds it)"
                )));
            }
        }
        let etcd = on_path("etcd").ok_or_else(|| {
            MissingProgram("etcd is not installed (Debian: apt install etcd-server)".to_owned())
        })?;
        on_path("setpriv")
            .ok_or_else(|| MissingProgram("setpriv of util-linux is missing".to_owned()))?;
        Ok(Self { folder, etcd })
    }

    /// Returns the path of a Kubernetes program such as `kubectl`. The program may be missing.
    #[must_use]
    pub fn kubernetes(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// Returns the path of etcd.
    #[must_use]
    pub fn etcd(&self) -> &Path {
        &self.etcd
    }
}

/// Finds Helm: the program that `scripts/helm` builds, or the one in the `PATH`.
pub fn find_helm() -> Result<PathBuf, MissingProgram> {
    let built = cache().join(format!("helm-{}", HELM_VERSION.trim())).join("helm");
    let found = Some(built).filter(|path| path.is_file()).or_else(|| on_path("helm"));
    found.ok_or_else(|| MissingProgram("helm is not installed (`make tools` builds it)".to_owned()))
}

/// Returns the version of Kubernetes, such as `v1.36.4`.
fn version() -> &'static str {
    let line = MODULE.lines().find_map(|line| line.strip_prefix("require k8s.io/kubernetes "));
    line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default()
}

/// Returns the cache directory, by the same rule as `scripts/kube`.
fn cache() -> PathBuf {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || named("HOME").unwrap_or_default().join(".cache");
    named("MCO_CACHE_DIR")
        .unwrap_or_else(|| named("XDG_CACHE_HOME").unwrap_or_else(home).join("mco"))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|found| found.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module() {
        assert!(version().starts_with("v1."), "{}", version());
    }
}
