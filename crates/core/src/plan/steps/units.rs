//! Steps of units: writing, enabling, disabling and removing them.

use std::collections::BTreeSet;

use mco_ignition::config::Unit;

use super::{super::Force, Step};
use crate::{
    diff::{Change, ConfigDiff},
    machine::{self, Machine},
};

pub(super) fn changed_units<'m>(diff: &ConfigDiff, to: &'m Machine, force: Force) -> Vec<&'m Unit> {
    let differs: BTreeSet<&str> = diff
        .units
        .iter()
        .filter(|unit| unit.change != Change::Removed)
        .map(|unit| unit.name.as_str())
        .collect();
    let is_written = |unit: &&Unit| differs.contains(unit.name.as_str()) || force == Force::Yes;
    to.config.systemd.units.iter().filter(is_written).collect()
}

pub(super) fn write_units(steps: &mut Vec<Step>, changed: &[&Unit], from: &Machine) {
    for unit in changed {
        for dropin in &unit.dropins {
            steps.push(Step::WriteDropin { unit: unit.name.clone(), dropin: dropin.name.clone() });
        }
        let old = from.unit(&unit.name);
        if unit.mask == Some(true) {
            // A masked unit keeps its links, so that they are removed first.
            if unit.enabled == Some(false) && old.is_some_and(|old| old.mask != Some(true)) {
                steps.push(Step::DisableUnit(unit.name.clone()));
            }
            steps.push(Step::MaskUnit(unit.name.clone()));
        } else if machine::has_contents(unit) {
            steps.push(Step::WriteUnit(unit.name.clone()));
        } else if old.is_some_and(machine::has_file) {
            // The reference leaves the file of the old config behind.
            steps.push(Step::RemoveUnit(unit.name.clone()));
        } else if unit.mask == Some(false) {
            steps.push(Step::UnmaskUnit(unit.name.clone()));
        }
    }
}

/// Returns the paths of all aliases that these units get when they are enabled.
pub(super) fn alias_paths(changed: &[&Unit]) -> BTreeSet<String> {
    let enabled = changed.iter().filter(|unit| unit.enabled == Some(true));
    let texts = enabled.flat_map(|unit| {
        let dropins = unit.dropins.iter().map(|dropin| &dropin.contents);
        std::iter::once(&unit.contents).chain(dropins).flatten()
    });
    let values = texts.flat_map(|text| text.lines()).filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "Alias").then_some(value)
    });
    values.flat_map(str::split_whitespace).map(machine::unit_path).collect()
}

pub(super) fn enable_units(steps: &mut Vec<Step>, changed: &[&Unit]) {
    // All units are written before the first is enabled, because one may refer to another. The
    // config comes after the presets of the system, and disabling after enabling: the last call
    // wins if a unit enables others (`Also=`).
    let each = |enabled: Option<bool>, step: fn(String) -> Step| {
        let units = changed.iter().filter(move |unit| unit.enabled == enabled);
        units.map(move |unit| step(unit.name.clone()))
    };
    steps.extend(each(None, Step::PresetUnit));
    steps.extend(each(Some(true), Step::EnableUnit));
    steps.extend(each(Some(false), Step::DisableUnit));
}

/// Enables units again that an earlier step may have disabled: it disabled a unit that they name in
/// `Also=`, or their template, or it removed a file in the place of one of their aliases.
pub(super) fn enable_again(steps: &mut Vec<Step>, to: &Machine) {
    let is_disabled_by = |unit: &Unit, other: &str| {
        let dropins = unit.dropins.iter().map(|dropin| &dropin.contents);
        let mut texts = std::iter::once(&unit.contents).chain(dropins).flatten();
        let is_template = other.split_once("@.").is_some_and(|(prefix, suffix)| {
            let rest = unit.name.strip_prefix(prefix).unwrap_or_default();
            rest.starts_with('@') && rest.ends_with(suffix)
        });
        unit.name != other
            && (is_template || texts.any(|text| text.contains("Also") && text.contains(other)))
    };
    let units = || to.config.systemd.units.iter();
    let again: Vec<&Unit> = units()
        .filter(|unit| unit.enabled == Some(true))
        .filter(|unit| {
            let enabled = Step::EnableUnit(unit.name.clone());
            let at = steps.iter().rposition(|step| *step == enabled).unwrap_or_default();
            let aliases = alias_paths(&[unit]);
            let frees_alias = |step: &Step| {
                let is_removal = matches!(step, Step::RemoveUnit(_) | Step::RemoveFile(_));
                is_removal && step.path().is_some_and(|path| aliases.contains(&path))
            };
            steps.iter().skip(at).any(|step| {
                if let Step::PresetUnit(other) | Step::RemoveUnit(other) = step
                    && is_disabled_by(unit, other)
                {
                    true
                } else {
                    frees_alias(step)
                }
            })
        })
        .collect();
    steps.extend(again.iter().map(|unit| Step::EnableUnit(unit.name.clone())));
    // The last call wins.
    let off = units().filter(|unit| unit.enabled == Some(false));
    let off = off.filter(|unit| again.iter().any(|it| is_disabled_by(it, &unit.name)));
    steps.extend(off.map(|unit| Step::DisableUnit(unit.name.clone())));
}

pub(super) fn remove_dropins(from: &Machine, to: &Machine) -> Vec<Step> {
    let mut steps = Vec::new();
    for unit in &from.config.systemd.units {
        for dropin in &unit.dropins {
            let stays = to
                .unit(&unit.name)
                .is_some_and(|new| new.dropins.iter().any(|kept| kept.name == dropin.name));
            let is_file = to.file(&machine::dropin_path(&unit.name, &dropin.name)).is_some();
            if !stays && !is_file {
                let (unit, dropin) = (unit.name.clone(), dropin.name.clone());
                steps.push(Step::RemoveDropin { unit, dropin });
            }
        }
    }
    steps
}

pub(super) fn remove_units(steps: &mut Vec<Step>, diff: &ConfigDiff, to: &Machine) {
    for unit in diff.units.iter().filter(|unit| unit.change == Change::Removed) {
        steps.push(Step::PresetUnit(unit.name.clone()));
        if to.file(&machine::unit_path(&unit.name)).is_none() {
            steps.push(Step::RemoveUnit(unit.name.clone()));
        }
    }
}

/// Applies the presets of units that only a unit of the old config enabled, by `Also=`.
pub(super) fn preset_companions(steps: &mut Vec<Step>, from: &Machine, to: &Machine) {
    let is_on = |unit: &Unit| unit.enabled == Some(true);
    let stays_on = |unit: &Unit| to.unit(&unit.name).is_some_and(is_on);
    for unit in from.config.systemd.units.iter().filter(|unit| is_on(unit) && !stays_on(unit)) {
        // Drop-ins of its template count for an instance.
        let template = unit.name.split_once('@').and_then(|(prefix, rest)| {
            let (_, suffix) = rest.rsplit_once('.')?;
            from.unit(&format!("{prefix}@.{suffix}"))
        });
        let parts = std::iter::once(unit).chain(template);
        let texts = parts.flat_map(|unit| {
            let dropins = unit.dropins.iter().map(|dropin| &dropin.contents);
            std::iter::once(&unit.contents).chain(dropins).flatten()
        });
        for text in texts {
            let values = text.lines().filter_map(|line| line.trim().strip_prefix("Also="));
            let others = values.flat_map(str::split_whitespace);
            for other in others.filter(|other| {
                !other.contains('%') && from.unit(other).is_none() && to.unit(other).is_none()
            }) {
                let step = Step::PresetUnit(other.to_owned());
                if !steps.contains(&step) {
                    steps.push(step);
                }
            }
        }
    }
}
