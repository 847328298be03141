//! Has the machine trust the certificates in its folder of anchors.

use crate::root::{Root, RootError};

/// What reads the anchors on systems that have such a unit.
const UNIT: &str = "coreos-update-ca-trust.service";
/// What reads them anywhere else.
const TOOL: &str = "/usr/bin/update-ca-trust";

/// What to run where this unit does not do; none if there is nothing else.
///
/// Compat: only for the one unit that the reference has a way round (`pkg/daemon/update.go`).
pub(crate) fn tool(root: &Root, service: &str) -> Result<Option<&'static str>, RootError> {
    Ok((service == UNIT && root.exists(TOOL)?).then_some(TOOL))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C107
    #[test]
    fn anchors_are_read_where_the_unit_for_it_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(tool(&root, UNIT).unwrap(), None);
        root.write(TOOL, b"", 0o755).unwrap();
        assert_eq!(tool(&root, UNIT).unwrap(), Some(TOOL));
        assert_eq!(tool(&root, "crio.service").unwrap(), None);
    }
}
