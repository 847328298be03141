//! Which files the operating system's packages brought.

use std::path::Path;

use crate::{
    root::{Root, RootError},
    system::Packaged,
};

const DPKG_LISTS: &str = "/var/lib/dpkg/info";

/// Files that Debian's package manager put there, by its own lists.
pub(crate) fn by_dpkg_lists(root: &Root, path: &str) -> Result<Packaged, RootError> {
    let names = root.list(DPKG_LISTS)?;
    if names.is_empty() {
        return Ok(Packaged::Unknown);
    }
    for name in names {
        if Path::new(&name).extension().is_none_or(|kind| kind != "list") {
            continue;
        }
        let Some(bytes) = root.read(&format!("{DPKG_LISTS}/{name}"))? else { continue };
        if bytes.split(|&byte| byte == b'\n').any(|line| line == path.as_bytes()) {
            return Ok(Packaged::Yes);
        }
    }
    Ok(Packaged::No)
}
