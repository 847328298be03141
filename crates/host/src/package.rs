//! Finds out which files belong to packages of the operating system.

use std::path::Path;

use crate::{
    root::{Root, RootError},
    system::Packaged,
};

const DPKG_LISTS: &str = "/var/lib/dpkg/info";

/// Looks a path up in the file lists of dpkg.
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
