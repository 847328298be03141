//! Which credentials the operating system pulls its images with.
//!
//! Compat: paths and the choice are the reference's (`pkg/daemon/image_manager_helper.go`). Better: the
//! link is replaced in one step, so that there is no moment without one.

use serde::de::IgnoredAny;
use tracing::{info, warn};

use super::Backend;
use crate::root::{Root, RootError};

/// The cluster's pull secret with that of the internal registry.
pub(super) const MERGED: &str = "/etc/mco/internal-registry-pull-secret.json";
/// The cluster's pull secret.
pub(super) const CLUSTER: &str = "/var/lib/kubelet/config.json";

/// Where each kind of system looks for credentials.
const RPM_OSTREE: &str = "/run/ostree/auth.json";
const BOOTC: &str = "/etc/ostree/auth.json";

/// What of the merged credentials can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merged {
    Good,
    Absent,
    Broken,
}

/// Which file the link leads to.
fn choose(merged: Merged) -> &'static str {
    match merged {
        Merged::Good => MERGED,
        Merged::Absent | Merged::Broken => CLUSTER,
    }
}

/// Gives the operating system the credentials of this cluster.
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
        warn!("{MERGED} is no JSON; images are pulled with {CLUSTER} alone");
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
    fn images_are_pulled_with_both_secrets_unless_that_file_is_broken() {
        for (os, place) in [(Backend::RpmOstree, RPM_OSTREE), (Backend::Bootc, BOOTC)] {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::open(folder.path()).unwrap();
            let leads_to = || root.read_link(place).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(CLUSTER), "there is no other");
            root.write(MERGED, br#"{"auths": {}}"#, 0o600).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(MERGED));
            root.write(MERGED, br#"{"auths": "#, 0o600).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(CLUSTER), "a broken one helps nobody");
            // Somebody's own file there gives way, as it does to the reference.
            root.remove(place).unwrap();
            root.write(place, b"{}", 0o600).unwrap();
            link(&root, os).unwrap();
            assert_eq!(leads_to().as_deref(), Some(CLUSTER));
        }
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        link(&root, Backend::None).unwrap();
        for place in [RPM_OSTREE, BOOTC] {
            assert_eq!(root.read_link(place).unwrap(), None, "it pulls no images of its own");
        }
    }
}
