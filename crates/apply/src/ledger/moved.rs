//! Moves the records of older programs from `/etc` to `/var`.

use mco_host::{Root, RootError};

const OLD: &str = "/etc/machine-config-daemon";
const NEW: &str = "/var/lib/machine-config-daemon";
const PACKS: &str = "mco-before";

/// The records, the ledger last: an update counts as begun once its ledger exists.
const RECORDS: [&str; 5] = [
    "mco-confirm.json",
    "mco-taken-back.json",
    "mco-last-update.json",
    "mco-update-progress.json",
    "mco-update.json",
];

/// Moves all records. A crash at any point leaves each of them in one place at least.
pub(super) fn from_etc(root: &Root) -> Result<(), RootError> {
    let found = root.list(OLD)?;
    let is_record = |name: &String| RECORDS.contains(&name.as_str()) || name == PACKS;
    if !found.iter().any(is_record) {
        return Ok(());
    }
    for pack in root.list(&format!("{OLD}/{PACKS}"))? {
        move_file(root, &format!("{PACKS}/{pack}"))?;
    }
    root.remove_empty_directory(&format!("{OLD}/{PACKS}"))?;
    RECORDS.iter().try_for_each(|name| move_file(root, name))
}

/// Copies and removes a file: the directories may be on different filesystems.
fn move_file(root: &Root, name: &str) -> Result<(), RootError> {
    let (old, new) = (format!("{OLD}/{name}"), format!("{NEW}/{name}"));
    let Some(bytes) = root.read(&old)? else { return Ok(()) };
    if root.stat(&new)?.is_none() {
        root.write(&new, &bytes, 0o600)?;
    }
    root.remove(&old)?;
    Ok(())
}
