//! The steps of a plan, in the order they are taken.
//!
//! Files first, then units, then what is no longer wanted, keys, the system, and last the record of
//! the config: from then on the disk is the new config's. Services hear of it afterwards. Every step
//! may be taken twice.

use std::{collections::BTreeSet, fmt};

use mco_ignition::config::Unit;
use serde::{Deserialize, Serialize};

use super::{Action, Circumstances, Force, Phase};
use crate::{
    diff::{Change, ConfigDiff},
    machine::{self, Machine},
};

/// One thing to do. Contents are those of the target config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Write a file of the target config.
    WriteFile(String),
    /// Take away a file that the target config no longer has, or put back what was there before.
    RemoveFile(String),
    /// Write a drop-in of the target config, or take it away if it is empty.
    WriteDropin {
        /// The unit.
        unit: String,
        /// The drop-in.
        dropin: String,
    },
    /// Take away a drop-in, or put back what was there before.
    RemoveDropin {
        /// The unit.
        unit: String,
        /// The drop-in.
        dropin: String,
    },
    /// Write a unit of the target config.
    WriteUnit(String),
    /// Put a link to nowhere in the unit's place.
    MaskUnit(String),
    /// Take that link away.
    UnmaskUnit(String),
    /// Take away a unit, or put back what was there before.
    RemoveUnit(String),
    /// Make the unit start at boot, and by no links but those it asks for now.
    EnableUnit(String),
    /// Make the unit not start at boot.
    DisableUnit(String),
    /// Make the unit start at boot or not, as the operating system has it.
    PresetUnit(String),
    /// Keep the kubelet's credentials from other users.
    ProtectKubeconfig,
    /// Write the SSH keys of the target config.
    WriteKeys,
    /// Set the password of the target config.
    SetPassword,
    /// Have this image booted next.
    StageOs(String),
    /// Have these kernel arguments in place of those at the next boot.
    StageKernelArguments {
        /// Those to take away.
        remove: Vec<String>,
        /// Those to add.
        add: Vec<String>,
    },
    /// Have this kernel booted next.
    StageKernel(String),
    /// Have these extension packages in place of those at the next boot.
    StageExtensions {
        /// Those to take away.
        remove: Vec<String>,
        /// Those to add.
        add: Vec<String>,
    },
    /// Record the target config as the one on the disk.
    RecordConfig,
    /// Take away the file that asked to apply the config regardless.
    RemoveForceFile,
    /// Make systemd read its units again.
    ReloadSystemd,
    /// Reload a service.
    ReloadService(String),
    /// Restart a service.
    RestartService(String),
    /// Restart the machine.
    Reboot,
}

/// The container engine, as it is reloaded when the list of registries changed.
pub(super) const ENGINE: &str = "crio";

const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const USER_CA: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
const REGISTRY_CAS: &str = "/etc/docker/certs.d";

impl Step {
    /// Whether it changes what is booted next, and nothing that runs now.
    #[must_use]
    pub fn stages(&self) -> bool {
        matches!(
            self,
            Self::StageOs(_)
                | Self::StageKernel(_)
                | Self::StageExtensions { .. }
                | Self::StageKernelArguments { .. }
        )
    }

    /// What the step is about, as verdicts name it; none if it is about no single difference.
    pub(super) fn subject(&self) -> Option<String> {
        match self {
            Self::WriteFile(path) | Self::RemoveFile(path) => Some(format!("file {path}")),
            Self::WriteUnit(unit)
            | Self::MaskUnit(unit)
            | Self::UnmaskUnit(unit)
            | Self::RemoveUnit(unit)
            | Self::EnableUnit(unit)
            | Self::DisableUnit(unit)
            | Self::PresetUnit(unit)
            | Self::WriteDropin { unit, .. }
            | Self::RemoveDropin { unit, .. } => Some(format!("unit {unit}")),
            Self::WriteKeys | Self::SetPassword => Some("SSH keys or password".to_owned()),
            Self::StageOs(_) => Some("OS image".to_owned()),
            Self::StageKernelArguments { .. } => Some("kernel arguments".to_owned()),
            Self::StageKernel(_) => Some("kernel type".to_owned()),
            Self::StageExtensions { .. } => Some("extensions".to_owned()),
            Self::RemoveForceFile => Some("force file".to_owned()),
            Self::ProtectKubeconfig
            | Self::RecordConfig
            | Self::ReloadSystemd
            | Self::ReloadService(_)
            | Self::RestartService(_)
            | Self::Reboot => None,
        }
    }
}

pub(super) fn steps(
    diff: &ConfigDiff,
    from: &Machine,
    to: &Machine,
    actions: &[Action],
    circumstances: &Circumstances,
) -> Vec<Step> {
    let mut steps = Vec::new();
    write_files(&mut steps, diff, to, circumstances);
    write_units(&mut steps, diff, to, circumstances.force);
    remove_files(&mut steps, diff, to);
    remove_units(&mut steps, diff, from, to);
    if circumstances.phase == Phase::Serving {
        steps.push(Step::ProtectKubeconfig);
    }
    let has_users = !to.config.passwd.users.is_empty();
    if diff.users.is_some() || (circumstances.force == Force::Yes && has_users) {
        steps.extend([Step::WriteKeys, Step::SetPassword]);
    }
    stage_system(&mut steps, diff);
    steps.push(Step::RecordConfig);
    if circumstances.force == Force::Yes {
        steps.push(Step::RemoveForceFile);
    }
    steps.extend(actions.iter().filter_map(|action| match action {
        // Nothing is done for these once the config is written.
        Action::None | Action::Drain => None,
        Action::DaemonReload => Some(Step::ReloadSystemd),
        Action::Reload(service) => Some(Step::ReloadService(service.clone())),
        Action::Restart(service) => Some(Step::RestartService(service.clone())),
        Action::Special => Some(Step::ReloadService(ENGINE.to_owned())),
        Action::Reboot => Some(Step::Reboot),
    }));
    steps
}

fn write_files(steps: &mut Vec<Step>, diff: &ConfigDiff, to: &Machine, at: &Circumstances) {
    let differs: BTreeSet<&str> = diff
        .files
        .iter()
        .filter(|file| matches!(file.change, Change::Added | Change::Changed))
        .map(|file| file.name.as_str())
        .collect();
    for file in &to.config.storage.files {
        // Once the node serves the cluster, the certificate follows the cluster and no config.
        let is_elsewhere = file.path == KUBELET_CA && at.phase != Phase::FirstBoot;
        let wanted = differs.contains(file.path.as_str()) || at.force == Force::Yes;
        if wanted && !is_elsewhere {
            steps.push(Step::WriteFile(file.path.clone()));
        }
    }
}

fn write_units(steps: &mut Vec<Step>, diff: &ConfigDiff, to: &Machine, force: Force) {
    let differs: BTreeSet<&str> = diff
        .units
        .iter()
        .filter(|unit| unit.change != Change::Removed)
        .map(|unit| unit.name.as_str())
        .collect();
    let written = |unit: &&Unit| differs.contains(unit.name.as_str()) || force == Force::Yes;
    let units = || to.config.systemd.units.iter().filter(written);
    for unit in units() {
        for dropin in &unit.dropins {
            steps.push(Step::WriteDropin { unit: unit.name.clone(), dropin: dropin.name.clone() });
        }
        if unit.mask == Some(true) {
            steps.push(Step::MaskUnit(unit.name.clone()));
        } else if machine::has_contents(unit) {
            steps.push(Step::WriteUnit(unit.name.clone()));
        } else if unit.mask == Some(false) {
            steps.push(Step::UnmaskUnit(unit.name.clone()));
        }
    }
    // All units are there before the first is enabled, for one may name another. What a config says
    // comes after what the system has by default, and off after on: the last word counts where a
    // unit takes others along.
    let each = |enabled: Option<bool>, step: fn(String) -> Step| {
        units().filter(move |unit| unit.enabled == enabled).map(move |unit| step(unit.name.clone()))
    };
    steps.extend(each(None, Step::PresetUnit));
    steps.extend(each(Some(true), Step::EnableUnit));
    steps.extend(each(Some(false), Step::DisableUnit));
}

fn remove_files(steps: &mut Vec<Step>, diff: &ConfigDiff, to: &Machine) {
    // The path went to another section of the config, which has written it by now.
    let is_elsewhere = |path: &str| {
        let mut units = to.config.systemd.units.iter();
        units.any(|unit| {
            let mut dropins = unit.dropins.iter();
            machine::unit_path(&unit.name) == path
                || dropins.any(|dropin| machine::dropin_path(&unit.name, &dropin.name) == path)
        })
    };
    for file in diff.files.iter().filter(|file| file.change == Change::Removed) {
        let path = file.name.as_str();
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_certificate =
            matches!(path, KUBELET_CA | CLOUD_CA | USER_CA) || folder.contains(REGISTRY_CAS);
        if !is_certificate && !is_elsewhere(path) {
            steps.push(Step::RemoveFile(path.to_owned()));
        }
    }
}

fn remove_units(steps: &mut Vec<Step>, diff: &ConfigDiff, from: &Machine, to: &Machine) {
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
    for unit in diff.units.iter().filter(|unit| unit.change == Change::Removed) {
        steps.push(Step::PresetUnit(unit.name.clone()));
        if to.file(&machine::unit_path(&unit.name)).is_none() {
            steps.push(Step::RemoveUnit(unit.name.clone()));
        }
    }
}

fn stage_system(steps: &mut Vec<Step>, diff: &ConfigDiff) {
    if let Some(image) = &diff.os_image {
        steps.push(Step::StageOs(image.to.clone()));
    }
    if let Some(change) = &diff.kernel_arguments {
        let (remove, add) = (change.remove.clone(), change.add.clone());
        steps.push(Step::StageKernelArguments { remove, add });
    }
    if let Some(kernel) = &diff.kernel_type {
        steps.push(Step::StageKernel(kernel.to.clone()));
    }
    if let Some(change) = &diff.extensions {
        let (remove, add) = (change.remove.clone(), change.add.clone());
        steps.push(Step::StageExtensions { remove, add });
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteFile(path) => write!(f, "write {path}"),
            Self::RemoveFile(path) => write!(f, "remove {path}"),
            Self::WriteDropin { unit, dropin } => write!(f, "write drop-in {dropin} of {unit}"),
            Self::RemoveDropin { unit, dropin } => write!(f, "remove drop-in {dropin} of {unit}"),
            Self::WriteUnit(unit) => write!(f, "write unit {unit}"),
            Self::MaskUnit(unit) => write!(f, "mask {unit}"),
            Self::UnmaskUnit(unit) => write!(f, "unmask {unit}"),
            Self::RemoveUnit(unit) => write!(f, "remove unit {unit}"),
            Self::EnableUnit(unit) => write!(f, "enable {unit}"),
            Self::DisableUnit(unit) => write!(f, "disable {unit}"),
            Self::PresetUnit(unit) => write!(f, "preset {unit}"),
            Self::ProtectKubeconfig => f.write_str("protect the kubelet's credentials"),
            Self::WriteKeys => f.write_str("write SSH keys"),
            Self::SetPassword => f.write_str("set the password"),
            Self::StageOs(image) => write!(f, "stage OS image {image}"),
            Self::StageKernelArguments { remove, add } => {
                write!(f, "stage kernel arguments -[{}] +[{}]", remove.join(" "), add.join(" "))
            }
            Self::StageKernel(kernel) => write!(f, "stage kernel {kernel}"),
            Self::StageExtensions { remove, add } => {
                write!(f, "stage extensions -[{}] +[{}]", remove.join(" "), add.join(" "))
            }
            Self::RecordConfig => f.write_str("record the config"),
            Self::RemoveForceFile => f.write_str("remove the force file"),
            Self::ReloadSystemd => f.write_str("reload systemd"),
            Self::ReloadService(service) => write!(f, "reload {service}"),
            Self::RestartService(service) => write!(f, "restart {service}"),
            Self::Reboot => f.write_str("reboot"),
        }
    }
}
