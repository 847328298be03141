//! Lists everything that the steps of a plan may change.

use mco_core::{
    machine::{self, Machine},
    plan::{NodePlan, Step},
};
use mco_host::{
    KEYS, LEAKED_LINKS, Root, RootError, SSH, kubelet_credential_files, original,
    snapshot::SnapshotPaths, unit,
};

use crate::{disk, execute::FORCE_FILE, force};

/// Everything that a plan may change.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Paths and units.
    pub(super) wanted: SnapshotPaths,
    /// True if the password may change.
    pub(super) password: bool,
    /// True if the staged deployment may change.
    pub(super) system: bool,
}

/// Lists everything that the steps of `plan` may change. Enabling a unit may enable others named in
/// its file, so the tree is read for units whose file is in no config.
pub(super) fn of(
    root: &Root,
    plan: &NodePlan,
    from: &Machine,
    to: &Machine,
) -> Result<Touched, RootError> {
    let mut touched = Touched::default();
    for step in &plan.steps {
        match step {
            Step::WriteFile(path) | Step::RemoveFile(path) => touched.file(path),
            Step::WriteDropin { unit, dropin } | Step::RemoveDropin { unit, dropin } => {
                touched.file(&machine::dropin_path(unit, dropin));
            }
            Step::WriteUnit(unit) => {
                touched.file(&machine::unit_path(unit));
                touched.links(root, unit, from, to)?;
            }
            Step::MaskUnit(unit) | Step::UnmaskUnit(unit) => {
                // Any file type is replaced, a directory too.
                touched.wanted.trees.insert(machine::unit_path(unit));
                touched.file(&machine::unit_path(unit));
            }
            Step::RemoveUnit(unit) => touched.file(&machine::unit_path(unit)),
            Step::EnableUnit(unit) | Step::DisableUnit(unit) | Step::PresetUnit(unit) => {
                touched.links(root, unit, from, to)?;
            }
            Step::ProtectKubeconfig => {
                kubelet_credential_files(root)?.iter().for_each(|path| touched.path(path));
            }
            Step::WriteKeys => {
                touched.wanted.trees.insert(SSH.to_owned());
                touched.path(KEYS);
                touched.path(KEYS.rsplit_once('/').map_or(SSH, |(folder, _)| folder));
            }
            Step::SetPassword => touched.password = true,
            Step::RecordConfig => {
                touched.path(disk::CURRENT_CONFIG);
                touched.path(disk::CURRENT_IMAGE);
                for link in LEAKED_LINKS {
                    touched.path(link);
                }
            }
            Step::RemoveForceFile => {
                touched.path(FORCE_FILE);
                touched.path(force::ABANDONED);
            }
            Step::StageOs(_)
            | Step::StageKernelArguments { .. }
            | Step::StageKernel(_)
            | Step::StageExtensions { .. } => touched.system = true,
            Step::ReloadSystemd
            | Step::ReloadService(_)
            | Step::RestartService(_)
            | Step::Reboot => {}
        }
    }
    Ok(touched)
}

impl Touched {
    fn path(&mut self, path: &str) {
        self.wanted.paths.insert(path.to_owned());
    }

    fn file(&mut self, path: &str) {
        self.path(path);
        self.path(&original::copy_path(path));
        self.path(&original::stamp_path(path));
    }

    fn links(
        &mut self,
        root: &Root,
        unit: &str,
        from: &Machine,
        to: &Machine,
    ) -> Result<(), RootError> {
        self.wanted.units.insert(unit.to_owned());
        self.wanted.units.insert(unit::real_name(root, unit)?);
        if let Some(present) = unit::text(root, unit)? {
            self.wanted.units.extend(unit::companions(unit, &present));
        }
        for unit in [from, to].into_iter().filter_map(|config| config.unit(unit)) {
            self.wanted.units.extend(unit::companions_in(unit));
            // systemd replaces the link of another unit there.
            for alias in unit::aliases_in(unit) {
                self.path(&machine::unit_path(&alias));
            }
        }
        Ok(())
    }
}
