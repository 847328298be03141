//! Differences from the recording that are on purpose: `mco` takes back what the reference leaves
//! behind, so that an update and its revert end where they began.

use std::collections::BTreeSet;

use mco_core::machine::{self, Machine};
use serde_json::Value;

use super::tree::Tree;

/// Returns true if a unit stays in the config and loses its contents or its mask. The reference
/// leaves the file, so that the rest of the recording does not apply.
pub(super) fn loses_unit_file(from: &Machine, to: &Machine) -> bool {
    from.config.systemd.units.iter().any(|old| {
        let new = to.unit(&old.name);
        machine::has_file(old) && new.is_some_and(|new| !machine::has_file(new))
    })
}

/// Returns the links that the reference leaves of units that are gone, or that are masked and to be
/// disabled, and the directories that only such links keep.
pub(super) fn links_left_behind(from: &Machine, to: &Machine, recorded: &Tree) -> BTreeSet<String> {
    let is_left = |name: &str| match to.unit(name) {
        None => true,
        Some(new) => new.mask == Some(true) && new.enabled == Some(false),
    };
    let units = from.config.systemd.units.iter().filter(|unit| is_left(&unit.name));
    let names: BTreeSet<&str> = units.map(|unit| unit.name.as_str()).collect();
    let mut left = BTreeSet::new();
    for (path, entry) in recorded {
        let target = entry.get("target").and_then(Value::as_str).unwrap_or_default();
        if target.rsplit('/').next().is_some_and(|name| names.contains(name)) {
            left.insert(path.clone());
            left.extend(path.rsplit_once('/').map(|(folder, _)| folder.to_owned()));
        }
    }
    left
}
