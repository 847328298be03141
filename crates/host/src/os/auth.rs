//! Links the pull secret for OS images.
//!
//! Compat: paths and the choice are the reference's (`pkg/daemon/image_manager_helper.go`). Better:
//! the link is replaced atomically.

use serde::de::IgnoredAny;
use tracing::{info, warn};

use super::Backend;
use crate::root::{Root, RootError};

/// The cluster's pull secret merged with that of the internal registry.
pub(super) const MERGED: &str = "/etc/mco/internal-registry-pull-secret.json";
/// The cluster's pull secret.
pub(super) const CLUSTER: &str = "/var/lib/kubelet/config.json";

/// Paths at which each kind of system looks for credentials.
const RPM_OSTREE: &str = "/run/ostree/auth.json";
const BOOTC: &str = "/etc/ostree/auth.json";

/// The state of the merged pull secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merged {
    Good,
    Absent,
    Broken,
}

/// Returns the target of the link.
fn choose(merged: Merged) -> &'static str {
    match merged {
        Merged::Good => MERGED,
        Merged::Absent | Merged::Broken => CLUSTER,
    }
}

/// Links the pull secret of this cluster for the operating system.
pub(crate) fn link(root: &Root, os: Backend) -> Result<(), RootError> {
    let place = match os {
        Backend::RpmOstree => RPM_OSTREE,
        Backend::Bootc => BOOTC,
        Backend::None => return Ok(()),
    };
    let merged = match root.read(MERGED)? {
        None => Merged::Absent,
        Some(bytes) if serde_json::from_slice::<IgnoredAny>(&bytes).is_ok() => Merged::Good,
        Some(_) => Merged::Broken,
    };
    if merged == Merged::Broken {
        warn!("{MERGED} is not valid JSON; using {CLUSTER} to pull OS images");
    }
    let target = choose(merged);
    if root.read_link(place)?.as_deref() != Some(target) {
        root.link(target, place)?;
        info!("Linking {place} to {target}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C106
    #[test]
    fn the_merged_secret_is_linked_unless_it_is_broken() {
        for (os, place) in [(Backend::RpmOstree, RPM_OSTREE), (Backend::Bootc, BOOTC)] {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::open(folder.path()).unwrap();
            let leads_to = || root.read_link(place).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(CLUSTER), "no merged secret");
            root.write(MERGED, br#"{"auths": {}}"#, 0o600).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(MERGED));
            root.write(MERGED, br#"{"auths": "#, 0o600).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(CLUSTER), "the merged secret is broken");
            // A regular file there is replaced, as in the reference.
            root.remove(place).unwrap();
            root.write(place, b"{}", 0o600).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(CLUSTER));
        }
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        link(&root, Backend::None).unwrap();
        for place in [RPM_OSTREE, BOOTC] {
            assert_eq!(root.read_link(place).unwrap(), None, "no OS images are pulled");
        }
    }
}
