//! Updates the machine's trust store from its anchors.

use crate::root::{Root, RootError};

/// Unit that updates the trust store on `CoreOS`.
const UNIT: &str = "coreos-update-ca-trust.service";
/// Tool that updates the trust store elsewhere.
const TOOL: &str = "/usr/bin/update-ca-trust";

/// Returns the tool to run if this unit fails; none if there is no alternative.
///
/// Compat: only for the one unit that the reference has an alternative for
/// (`pkg/daemon/update.go`).
pub(crate) fn tool(root: &Root, service: &str) -> Result<Option<&'static str>, RootError> {
    Ok((service == UNIT && root.exists(TOOL)?).then_some(TOOL))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C107
    #[test]
    fn the_tool_replaces_a_missing_unit() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(tool(&root, UNIT).unwrap(), None);
        root.write(TOOL, b"", 0o755).unwrap();
        assert_eq!(tool(&root, UNIT).unwrap(), Some(TOOL));
        assert_eq!(tool(&root, "crio.service").unwrap(), None);
    }
}
