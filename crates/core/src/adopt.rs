//! Adoption of a machine that was not managed by `mco` before.
//!
//! A machine may have been part of a cluster for years before the first config reaches it. Adoption
//! avoids a disruptive first update: every part of the config that is already on the machine counts
//! as applied. The normal plan then covers only the difference, when the rollout selects the node.
//! Files and units that no config names are never touched.

use std::collections::BTreeSet;

use mco_api::{MachineConfig, RawConfig};
use mco_ignition::config::Unit;

use crate::{
    drift::{self, Expected, Want},
    machine::{self, Machine},
};

/// Prefix of an adopted config's name, in place of `rendered-`.
pub const PREFIX: &str = "adopted-";

/// Returns the checks that adopting a machine for a config needs: all that [`drift::expected`]
/// lists, plus units that are only enabled, disabled or masked.
#[must_use]
pub fn checks(target: &Machine) -> Vec<Expected> {
    let mut list = drift::expected(target);
    for unit in target.config.systemd.units.iter().filter(|unit| !machine::has_contents(unit)) {
        if unit.mask == Some(true) {
            list.push(Expected { path: machine::unit_path(&unit.name), want: Want::Masked });
        } else if let Some(enabled) = unit.enabled {
            list.push(Expected { path: unit.name.clone(), want: Want::Enabled(enabled) });
        }
    }
    list
}

/// Builds the part of `target` that is on the machine already, given the paths and units that
/// differ.
///
/// Returns `target` itself if nothing differs. `kernel_arguments` are those of the current boot.
#[must_use]
pub fn adopted(
    target: &Machine,
    differs: &BTreeSet<String>,
    booted_image: Option<&str>,
    kernel_arguments: &[String],
) -> MachineConfig {
    let mut part = target.clone();
    part.config.storage.files.retain(|file| !differs.contains(&file.path));
    part.config.systemd.units.retain(|unit| !unit_differs(unit, differs));
    // SSH keys are not checked: writing them again disrupts nothing.
    part.config.passwd = mco_ignition::Config::empty().passwd;
    let booted = |argument: &str| kernel_arguments.iter().any(|found| found == argument);
    part.spec.kernel_arguments.retain(|text| text.split_whitespace().all(booted));
    // Neither is looked up on the machine: staging what it already has changes nothing.
    part.spec.extensions.clear();
    if target.kernel() != "default" {
        part.spec.kernel_type.clear();
    }
    if let Some(image) = booted_image {
        image.clone_into(&mut part.spec.os_image_url);
    }
    let whole = part.config == target.config && part.spec == target.spec;
    if !whole {
        let rest = target.name.strip_prefix("rendered-").unwrap_or(&target.name);
        part.name = format!("{PREFIX}{rest}");
        // The Ignition text must match the parts kept above; it is written in the newest version of
        // the format.
        let text = String::from_utf8(part.config.to_json()).expect("JSON is UTF-8");
        part.spec.config = Some(RawConfig::from_json(text).expect("a serialized config is JSON"));
    }
    MachineConfig::new(&part.name, part.spec)
}

fn unit_differs(unit: &Unit, differs: &BTreeSet<String>) -> bool {
    differs.contains(&unit.name)
        || differs.contains(&machine::unit_path(&unit.name))
        || unit
            .dropins
            .iter()
            .any(|dropin| differs.contains(&machine::dropin_path(&unit.name, &dropin.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{diff, fixture::machine};

    fn target(parts: &str) -> Machine {
        let mut target = machine("rendered-worker-1", parts);
        let text = String::from_utf8(target.config.to_json()).unwrap();
        target.spec.config = Some(RawConfig::from_json(text).unwrap());
        target
    }

    fn adopt(target: &Machine, differs: &[&str], arguments: &[&str]) -> Machine {
        let differs = differs.iter().map(|&path| path.to_owned()).collect();
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        Machine::read(&adopted(target, &differs, None, &arguments)).unwrap()
    }

    #[test]
    fn parts_already_present_are_not_applied_again() {
        let target = target("/etc/a=1 /etc/b=2 x.service=y karg:quiet");
        let cases: [(&[&str], &[&str], &str); 5] = [
            (&[], &["quiet", "ro"], ""),
            (&["/etc/b"], &["quiet"], "/etc/b"),
            (&["x.service"], &["quiet"], "x.service"),
            (&["/etc/systemd/system/x.service"], &["quiet"], "x.service"),
            (&[], &["ro"], "quiet"),
        ];
        for (differs, arguments, want) in cases {
            let from = adopt(&target, differs, arguments);
            let diff = format!("{:?}", diff::between(&from, &target));
            assert_eq!(from.name == target.name, want.is_empty(), "{differs:?} {arguments:?}");
            assert!(diff.contains(want), "{differs:?}: {diff}");
            assert!(!diff.contains("/etc/a"), "{diff}");
        }
    }

    #[test]
    fn another_kernel_is_staged_on_an_adopted_machine() {
        let target = target("kernel:realtime");
        let diff = diff::between(&adopt(&target, &[], &[]), &target);
        assert!(diff.kernel_type.is_some(), "{diff:?}");
    }

    #[test]
    fn units_that_are_only_enabled_are_checked_too() {
        let mut target = target("kubelet.service");
        target.config.systemd.units[0].enabled = Some(true);
        let checks = checks(&target);
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].want, Want::Enabled(true));
    }
}
