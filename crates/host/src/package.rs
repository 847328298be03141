//! Which files the operating system's packages brought.

use std::path::Path;

use crate::root::{Root, RootError};

const DPKG_LISTS: &str = "/var/lib/dpkg/info";

/// Files that Debian's package manager put there, by its own lists.
pub(crate) fn is_in_dpkg_list(root: &Root, path: &str) -> Result<bool, RootError> {
    for name in root.list(DPKG_LISTS)? {
        if Path::new(&name).extension().is_none_or(|kind| kind != "list") {
            continue;
        }
        let Some(bytes) = root.read(&format!("{DPKG_LISTS}/{name}"))? else { continue };
        if bytes.split(|&byte| byte == b'\n').any(|line| line == path.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}
