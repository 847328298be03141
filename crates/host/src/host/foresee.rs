//! Foresees which units of a config cannot be enabled: before the node is drained, and not after.

use mco_core::{
    machine::{self, Machine},
    plan::{NodePlan, Step},
};
use mco_ignition::config::Unit;

use super::{Host, HostError, stale_companions};
use crate::{
    original,
    system::{System, SystemError},
    unit::{self, LinkError, PlannedTree, UnitError, UnitTree as _},
};

impl<S: System> Host<S> {
    /// Fails if a step of `plan` will enable a unit that cannot be enabled: one that the config masks,
    /// too, or whose alias is another file.
    pub(super) fn check_units(
        &self,
        from: &Machine,
        to: &Machine,
        plan: &NodePlan,
    ) -> Result<(), HostError> {
        let is_enabled = |step: &Step| matches!(step, Step::EnableUnit(_));
        if !plan.steps.iter().any(is_enabled) {
            return Ok(());
        }
        let tree = PlannedTree::new(&self.root);
        for step in &plan.steps {
            self.foresee(&tree, step, from, to)?;
        }
        Ok(())
    }

    fn foresee(
        &self,
        tree: &PlannedTree<'_>,
        step: &Step,
        from: &Machine,
        to: &Machine,
    ) -> Result<(), HostError> {
        let path = step.path().filter(|path| unit::is_unit_path(path)).unwrap_or_default();
        match step {
            Step::WriteFile(name) if !path.is_empty() => {
                let contents = to.file(name).map(machine::contents);
                tree.write(&path, &contents.and_then(Result::ok).unwrap_or_default());
            }
            Step::WriteUnit(name) => {
                let (old, Some(new)) = (from.unit(name), to.unit(name)) else { return Ok(()) };
                tree.write(&path, new.contents.as_deref().unwrap_or_default().as_bytes());
                for other in old.map(|old| stale_companions(old, new, to)).unwrap_or_default() {
                    drop(unit::disable(tree, &other));
                }
            }
            Step::WriteDropin { unit, dropin } => {
                let dropins = to.unit(unit).map(|unit| unit.dropins.as_slice()).unwrap_or_default();
                let found = dropins.iter().find(|it| it.name == *dropin);
                match found.and_then(|it| it.contents.as_deref()).unwrap_or_default() {
                    "" => drop(tree.remove(&path)?),
                    text => tree.write(&path, text.as_bytes()),
                }
            }
            Step::MaskUnit(_) => tree.link("/dev/null", &path)?,
            Step::UnmaskUnit(_) => drop(tree.remove(&path)?),
            Step::RemoveFile(_) | Step::RemoveDropin { .. } if !path.is_empty() => {
                self.foresee_removal(tree, &path)?;
            }
            Step::RemoveUnit(name) => {
                if from.unit(name).is_some_and(machine::has_file) {
                    self.foresee_removal(tree, &path)?;
                }
                unit::remove_dangling_links(tree, name)?;
            }
            Step::EnableUnit(name) => foresee_enabled(tree, name, to)?,
            Step::DisableUnit(name) => drop(unit::disable(tree, name)),
            Step::PresetUnit(name) => drop(unit::preset(tree, name)),
            Step::WriteFile(_)
            | Step::RemoveFile(_)
            | Step::RemoveDropin { .. }
            | Step::ProtectKubeconfig
            | Step::WriteKeys
            | Step::SetPassword
            | Step::StageOs(_)
            | Step::StageKernelArguments { .. }
            | Step::StageKernel(_)
            | Step::StageExtensions { .. }
            | Step::RecordConfig
            | Step::RemoveForceFile
            | Step::ReloadSystemd
            | Step::ReloadService(_)
            | Step::RestartService(_)
            | Step::Reboot => {}
        }
        Ok(())
    }

    fn foresee_removal(&self, tree: &PlannedTree<'_>, path: &str) -> Result<(), HostError> {
        match self.root.read(&original::copy_path(path))? {
            Some(original) => tree.write(path, &original),
            None => drop(tree.remove(path)?),
        }
        Ok(())
    }
}

fn foresee_enabled(tree: &PlannedTree<'_>, name: &str, to: &Machine) -> Result<(), HostError> {
    let Some(unit) = to.unit(name) else { return Ok(()) };
    // systemd decides about a unit that has no file, such as one of a generator.
    if is_only_masked(tree, unit)? || !unit::exists(tree, name).map_err(SystemError::from)? {
        return Ok(());
    }
    let enabled = match other_at_alias(unit, to) {
        Some(conflict) => Err(UnitError::InvalidLinks(vec![conflict])),
        None => unit::enable_replacing(tree, name),
    };
    match enabled {
        Ok(()) => Ok(()),
        Err(UnitError::Root(error)) => Err(error.into()),
        Err(error) => Err(HostError::Enable {
            what: "error enabling units",
            source: SystemError::Unit(error),
        }),
    }
}

/// Returns true if nothing but the mask of its config makes the unit exist.
///
/// Compat: such a unit is not enabled (pkg/daemon/update.go).
pub(super) fn is_only_masked(tree: &impl unit::UnitTree, unit: &Unit) -> Result<bool, HostError> {
    let is_masked = unit.mask == Some(true) && !machine::has_contents(unit);
    Ok(is_masked && !unit::exists_below_mask(tree, &unit.name)?)
}

/// Returns the conflict of an alias of the unit with another unit or file of the config: each would
/// take the place of the other.
fn other_at_alias(unit: &Unit, to: &Machine) -> Option<LinkError> {
    let others = || to.config.systemd.units.iter().filter(|other| other.name != unit.name);
    unit::aliases_in(unit).into_iter().find_map(|alias| {
        let path = machine::unit_path(&alias);
        let is_written = |other: &&Unit| other.name == alias && machine::has_file(other);
        if others().any(|other| is_written(&other)) || to.file(&path).is_some() {
            return Some(LinkError::Exists { path, target: None });
        }
        let has_alias =
            |other: &&Unit| other.enabled == Some(true) && unit::aliases_in(other).contains(&alias);
        let target = others().find(has_alias).map(|other| machine::unit_path(&other.name))?;
        Some(LinkError::Exists { path, target: Some(target) })
    })
}

#[cfg(test)]
mod tests {
    use mco_core::plan::{self, Circumstances, default_policies};

    use super::*;
    use crate::{root::Root, simulated::SimulatedSystem};

    const ALIASED: &str = "[Install]\nWantedBy=m.target\nAlias=z.service\n";
    const PLAIN: &str = "[Install]\nWantedBy=m.target\n";

    fn unit(name: &str, contents: &str) -> Unit {
        let contents = Some(contents.to_owned()).filter(|text| !text.is_empty());
        Unit { name: name.to_owned(), contents, enabled: Some(true), ..Unit::default() }
    }

    fn masked(unit: Unit) -> Unit {
        Unit { mask: Some(true), ..unit }
    }

    fn config(units: &[Unit]) -> Machine {
        let mut machine = Machine::blank();
        machine.config.systemd.units = units.to_vec();
        machine
    }

    fn host(folder: &std::path::Path) -> Host<SimulatedSystem> {
        let root = Root::open(folder).unwrap();
        SimulatedSystem::write_base_files(&root).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        Host { root, system }
    }

    fn check(host: &Host<SimulatedSystem>, from: &[Unit], to: &[Unit]) -> Option<String> {
        let (from, to) = (config(from), config(to));
        let plan = plan::node(&from, &to, &default_policies(), &Circumstances::default());
        host.check_paths(&from, &to, &plan.unwrap()).err().map(|error| error.to_string())
    }

    // covers: C69
    #[test]
    fn a_unit_that_is_masked_and_enabled_is_refused_unless_it_does_not_exist() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path());
        let refused = |unit: &str| {
            Some(format!(
                "error enabling units: Failed to enable unit, unit /etc/systemd/system/{unit} is masked."
            ))
        };
        let cases = [
            (masked(unit("u.service", PLAIN)), refused("u.service")),
            (masked(unit("kubelet.service", "")), refused("kubelet.service")),
            // As in the reference.
            (masked(unit("u.service", "")), None),
            (unit("kubelet.service", ""), None),
            (unit("u.service", PLAIN), None),
        ];
        for (unit, want) in cases {
            assert_eq!(check(&host, &[], std::slice::from_ref(&unit)), want, "{unit:?}");
        }
        assert_eq!(
            check(&host, &[unit("u.service", PLAIN)], &[masked(unit("u.service", PLAIN))]),
            refused("u.service")
        );
    }

    #[test]
    fn a_unit_that_is_only_masked_is_not_enabled() {
        let folder = tempfile::tempdir().unwrap();
        let mut host = host(folder.path());
        let only = masked(unit("u.service", ""));
        host.mask_unit("u.service").unwrap();
        host.enable_unit(&only).unwrap();
        host.mask_unit("kubelet.service").unwrap();
        assert!(host.enable_unit(&masked(unit("kubelet.service", ""))).is_err());
    }

    #[test]
    fn an_alias_in_the_place_of_another_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let host = host(folder.path());
        let (u, v) = (unit("u.service", ALIASED), unit("v.service", ALIASED));
        let z = unit("z.service", PLAIN);
        let exists = "error enabling units: Failed to enable unit, file \
                      \"/etc/systemd/system/z.service\" already exists";
        assert_eq!(check(&host, &[], &[u.clone(), z.clone()]), Some(format!("{exists}.")));
        let mask = Unit { enabled: None, contents: None, ..masked(z.clone()) };
        assert_eq!(check(&host, &[], &[u.clone(), mask]), Some(format!("{exists}.")));
        let both = check(&host, &[], &[u.clone(), v.clone()]).unwrap();
        assert!(both.starts_with(exists) && both.contains("v.service"), "{both}");
        // The alias moves, or makes place.
        assert_eq!(check(&host, std::slice::from_ref(&u), std::slice::from_ref(&v)), None);
        let changed = unit("u.service", PLAIN);
        assert_eq!(check(&host, std::slice::from_ref(&u), &[v, changed]), None);
        assert_eq!(check(&host, std::slice::from_ref(&u), std::slice::from_ref(&z)), None);
        assert_eq!(check(&host, &[z], std::slice::from_ref(&u)), None);
        // systemd replaces a link, and no file.
        host.root
            .link("/usr/lib/systemd/system/sshd.service", "/etc/systemd/system/z.service")
            .unwrap();
        assert_eq!(check(&host, &[], std::slice::from_ref(&u)), None);
        host.root.write("/etc/systemd/system/z.service", b"[Service]", 0o644).unwrap();
        assert_eq!(check(&host, &[], std::slice::from_ref(&u)), Some(format!("{exists}.")));
        assert!(!host.root.exists("/etc/systemd/system/u.service").unwrap(), "nothing is written");
    }
}
