//! Where the programs of a real Kubernetes are, or what is missing.

#![expect(clippy::disallowed_methods, reason = "looks for programs where scripts/kube puts them")]

use std::{
    env, fmt,
    path::{Path, PathBuf},
};

/// The version that `scripts/kube` builds, from the module it is built from.
const MODULE: &str = include_str!("../../kube/go.mod");

/// The programs of a real Kubernetes.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    etcd: PathBuf,
}

/// What is missing, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent(String);

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Programs {
    /// Looks for etcd, and for those that `scripts/kube` builds.
    pub fn find() -> Result<Self, Absent> {
        let folder = cache().join(format!("kube-{}", version()));
        for program in ["kube-apiserver", "kubectl"] {
            if !folder.join(program).is_file() {
                let folder = folder.display();
                return Err(Absent(format!(
                    "{program} is not in {folder} (`make tools` builds it)"
                )));
            }
        }
        let etcd = on_path("etcd").ok_or_else(|| {
            Absent("etcd is not installed (Debian: apt install etcd-server)".to_owned())
        })?;
        on_path("setpriv").ok_or_else(|| Absent("setpriv of util-linux is missing".to_owned()))?;
        Ok(Self { folder, etcd })
    }

    /// A program of Kubernetes, such as `kubectl`; it need not be there.
    #[must_use]
    pub fn kubernetes(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }

    /// The database.
    #[must_use]
    pub fn etcd(&self) -> &Path {
        &self.etcd
    }
}

/// The version of Kubernetes, such as `v1.36.4`.
fn version() -> &'static str {
    let line = MODULE.lines().find_map(|line| line.strip_prefix("require k8s.io/kubernetes "));
    line.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default()
}

/// The folder of `scripts/kube`, found by the same rule.
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
