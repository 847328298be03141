//! Differences from the recording that are on purpose: `mco` takes back what the reference leaves
//! behind, so that an update and its revert end where they began.

use std::collections::BTreeSet;

use mco_api::MachineConfig;
use mco_core::machine::{self, Machine};
use mco_host::original;
use mco_ignition::config::Unit;
use serde_json::Value;

use super::tree::Tree;

/// Returns true if the reference fails on the mask of a unit that the config no longer masks, which it
/// left. The rest of the recording starts from another config than `mco` has then.
pub(super) fn fails_on_left_mask(from: &MachineConfig, to: &MachineConfig, error: &str) -> bool {
    let (Ok(from), Ok(to)) = (Machine::read(from), Machine::read(to)) else { return false };
    from.config.systemd.units.iter().any(|old| {
        let is_unmasked = to.unit(&old.name).is_some_and(|new| new.mask != Some(true));
        let text = format!("unit {} is masked", machine::unit_path(&old.name));
        old.mask == Some(true) && is_unmasked && error.contains(&text)
    })
}

/// Returns the paths of units that stay in the config and lose their contents or their mask: the
/// file, the records of its original, and the links to it. The reference leaves the file, so that
/// the rest of the recording does not apply to them.
pub(super) fn paths_without_contents(
    from: &Machine,
    to: &Machine,
    trees: [&Tree; 2],
) -> BTreeSet<String> {
    let loses_file = |old: &&Unit| {
        let new = to.unit(&old.name);
        machine::has_file(old) && new.is_some_and(|new| !machine::has_file(new))
    };
    let units = from.config.systemd.units.iter().filter(loses_file);
    let names: BTreeSet<&str> = units.map(|unit| unit.name.as_str()).collect();
    let mut paths = BTreeSet::new();
    for name in &names {
        let path = machine::unit_path(name);
        paths.extend([original::copy_path(&path), original::stamp_path(&path), path]);
    }
    for tree in trees {
        paths.extend(links_to(&names, tree));
    }
    paths
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
    links_to(&names, recorded)
}

/// Returns the links to these units, and their directories.
fn links_to(names: &BTreeSet<&str>, tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (path, entry) in tree {
        let target = entry.get("target").and_then(Value::as_str).unwrap_or_default();
        if target.rsplit('/').next().is_some_and(|name| names.contains(name)) {
            found.insert(path.clone());
            found.extend(path.rsplit_once('/').map(|(folder, _)| folder.to_owned()));
        }
    }
    found
}
