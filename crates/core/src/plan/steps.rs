//! Steps of a plan, in the order of execution.
//!
//! Files come first, then units, then the removal of files and units that are no longer in the
//! config, SSH keys, the operating system, and last the record of the config: from then on the disk
//! has the new config. Services are reloaded or restarted afterwards. Every step is idempotent.
//!
//! A path that lies above or below one that is written is removed before all of them: a machine
//! cannot have the file `/etc/a` and the file `/etc/a/b` at the same time.

mod units;

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use super::{Action, ApplyMode, Circumstances, Force};
use crate::{
    diff::{Change, ConfigDiff, ImageMode},
    machine::{self, Machine, paths},
};

/// A step of a plan. Contents are those of the target config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Write a file of the target config.
    WriteFile(String),
    /// Remove a file that the target config no longer has, or restore the original.
    RemoveFile(String),
    /// Write a drop-in of the target config, or remove it if it is empty.
    WriteDropin {
        /// Name of the unit.
        unit: String,
        /// Name of the drop-in.
        dropin: String,
    },
    /// Remove a drop-in, or restore the original.
    RemoveDropin {
        /// Name of the unit.
        unit: String,
        /// Name of the drop-in.
        dropin: String,
    },
    /// Write a unit of the target config.
    WriteUnit(String),
    /// Mask the unit with a link to `/dev/null`.
    MaskUnit(String),
    /// Remove the mask.
    UnmaskUnit(String),
    /// Remove a unit, or restore the original.
    RemoveUnit(String),
    /// Enable the unit, with no other links than its current `[Install]` section names.
    EnableUnit(String),
    /// Disable the unit.
    DisableUnit(String),
    /// Enable or disable the unit according to the presets of the operating system.
    PresetUnit(String),
    /// Restrict the permissions of the kubelet's kubeconfig.
    ProtectKubeconfig,
    /// Write the SSH keys of the target config.
    WriteKeys,
    /// Set the password of the target config.
    SetPassword,
    /// Stage this image for the next boot.
    StageOs(String),
    /// Stage a change of the kernel arguments for the next boot.
    StageKernelArguments {
        /// Arguments to remove.
        remove: Vec<String>,
        /// Arguments to add.
        add: Vec<String>,
    },
    /// Stage this kernel for the next boot.
    StageKernel(String),
    /// Stage a change of the extension packages for the next boot.
    StageExtensions {
        /// Extensions to remove.
        remove: Vec<String>,
        /// Extensions to add.
        add: Vec<String>,
    },
    /// Record the target config as the one on disk.
    RecordConfig,
    /// Remove the force file.
    RemoveForceFile,
    /// Reload the systemd manager configuration.
    ReloadSystemd,
    /// Reload a service.
    ReloadService(String),
    /// Restart a service.
    RestartService(String),
    /// Reboot the machine.
    Reboot,
}

/// Service of the container engine, as reloaded after a change of the registries file.
pub(super) const ENGINE: &str = "crio";

const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const USER_CA: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
const REGISTRY_CAS: &str = "/etc/docker/certs.d";

impl Step {
    /// Returns true if the step only changes the next boot.
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

    /// Returns true if the step changes no file: it makes systemd or a service read the new config,
    /// which the disk has by then.
    #[must_use]
    pub fn is_service_action(&self) -> bool {
        matches!(self, Self::ReloadSystemd | Self::ReloadService(_) | Self::RestartService(_))
    }

    /// Returns the path that the step writes or removes; `None` if there is no single one.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        match self {
            Self::WriteFile(path) | Self::RemoveFile(path) => Some(path.clone()),
            Self::WriteUnit(unit)
            | Self::MaskUnit(unit)
            | Self::UnmaskUnit(unit)
            | Self::RemoveUnit(unit) => Some(machine::unit_path(unit)),
            Self::WriteDropin { unit, dropin } | Self::RemoveDropin { unit, dropin } => {
                Some(machine::dropin_path(unit, dropin))
            }
            Self::EnableUnit(_)
            | Self::DisableUnit(_)
            | Self::PresetUnit(_)
            | Self::ProtectKubeconfig
            | Self::WriteKeys
            | Self::SetPassword
            | Self::StageOs(_)
            | Self::StageKernelArguments { .. }
            | Self::StageKernel(_)
            | Self::StageExtensions { .. }
            | Self::RecordConfig
            | Self::RemoveForceFile
            | Self::ReloadSystemd
            | Self::ReloadService(_)
            | Self::RestartService(_)
            | Self::Reboot => None,
        }
    }

    /// Returns the subject of the step in the words of the policy decisions; `None` if the step
    /// belongs to no single difference.
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
    let mut writes = Vec::new();
    write_files(&mut writes, diff, to, circumstances);
    let changed = units::changed_units(diff, to, circumstances.force);
    units::write_units(&mut writes, &changed, from);
    // A drop-in may have an `[Install]` section, which must not count any longer.
    let (mut steps, dropins) = split_obstacles(units::remove_dropins(from, to), &writes);
    let mut removals = Vec::new();
    remove_files(&mut removals, diff, to);
    units::remove_units(&mut removals, diff, to);
    units::preset_companions(&mut removals, from, to);
    let (mut obstacles, removals) = split_obstacles(removals, &writes);
    // systemd refuses an alias in the place of a file.
    let aliases = units::alias_paths(&changed);
    let (in_place_of_alias, removals): (Vec<Step>, Vec<Step>) =
        removals.into_iter().partition(|step| aliases.contains(&place(step)));
    obstacles.extend(in_place_of_alias);
    steps.extend(obstacles.into_iter().chain(writes).chain(dropins));
    units::enable_units(&mut steps, &changed);
    steps.extend(removals);
    units::enable_again(&mut steps, to);
    if circumstances.mode == ApplyMode::Serving {
        steps.push(Step::ProtectKubeconfig);
    }
    let has_users = !to.config.passwd.users.is_empty();
    if diff.users.is_some() || (circumstances.force == Force::Yes && has_users) {
        steps.extend([Step::WriteKeys, Step::SetPassword]);
    }
    stage_system(&mut steps, diff, from, to, circumstances.force);
    steps.push(Step::RecordConfig);
    if circumstances.force == Force::Yes {
        steps.push(Step::RemoveForceFile);
    }
    steps.extend(actions.iter().filter_map(|action| match action {
        // These need no step after the config is written.
        Action::None | Action::Drain => None,
        Action::DaemonReload => Some(Step::ReloadSystemd),
        Action::Reload(service) => Some(Step::ReloadService(service.clone())),
        Action::Restart(service) => Some(Step::RestartService(service.clone())),
        Action::Special => Some(Step::ReloadService(ENGINE.to_owned())),
        Action::Reboot => Some(Step::Reboot),
    }));
    steps
}

/// Splits removals into those that must come before the writes, and the others.
fn split_obstacles(removals: Vec<Step>, writes: &[Step]) -> (Vec<Step>, Vec<Step>) {
    let written: BTreeSet<String> = writes.iter().filter_map(Step::path).collect();
    let is_obstacle = |step: &Step| {
        let path = place(step);
        let mut below = written.range(format!("{path}/")..);
        let is_above = below.next().is_some_and(|it| paths::are_related(it, &path));
        is_above || paths::ancestors(&path).any(|above| written.contains(above))
    };
    removals.into_iter().partition(is_obstacle)
}

/// Returns the path that a removal makes free. Presets of a unit are applied while its file exists.
fn place(removal: &Step) -> String {
    if let Step::PresetUnit(unit) = removal {
        machine::unit_path(unit)
    } else {
        removal.path().unwrap_or_default()
    }
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
        let is_elsewhere = file.path == KUBELET_CA && at.mode != ApplyMode::FirstBoot;
        let wanted = differs.contains(file.path.as_str()) || at.force == Force::Yes;
        if wanted && !is_elsewhere {
            steps.push(Step::WriteFile(file.path.clone()));
        }
    }
}

fn remove_files(steps: &mut Vec<Step>, diff: &ConfigDiff, to: &Machine) {
    // The path moved to another section of the config, which has written it by now.
    let is_elsewhere = |path: &str| {
        let mut units = to.config.systemd.units.iter();
        units.any(|unit| {
            let mut dropins = unit.dropins.iter();
            (machine::has_file(unit) && machine::unit_path(&unit.name) == path)
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

fn stage_system(
    steps: &mut Vec<Step>,
    diff: &ConfigDiff,
    from: &Machine,
    to: &Machine,
    force: Force,
) {
    // A config without an image has no opinion: the booted image stays.
    let own = [to.spec.os_image_url.as_str()];
    let image = diff.os_image.as_ref().and_then(|image| {
        let named = std::iter::once(image.to.as_str()).chain(own);
        named.into_iter().find(|image| !image.is_empty())
    });
    steps.extend(image.map(|image| Step::StageOs(image.to_owned())));
    if let Some(change) = &diff.kernel_arguments {
        let (remove, add) = (change.remove.clone(), change.add.clone());
        steps.push(Step::StageKernelArguments { remove, add });
    } else if force == Force::Yes && !to.spec.kernel_arguments.is_empty() {
        // The boot loader may have lost them.
        let own = &to.spec.kernel_arguments;
        steps.push(Step::StageKernelArguments { remove: own.clone(), add: own.clone() });
    }
    // Kernels and extensions are packages on top of an image, and installed again with a new one.
    // Without one, the machine may have lost them. A built image contains them.
    let is_renewed = (image.is_some() || force == Force::Yes) && diff.image_mode != ImageMode::On;
    if let Some(kernel) = &diff.kernel_type {
        steps.push(Step::StageKernel(kernel.to.clone()));
    } else if is_renewed && to.kernel() != "default" {
        steps.push(Step::StageKernel(to.kernel().to_owned()));
    }
    let extensions = &to.spec.extensions;
    if diff.extensions.is_some() || (is_renewed && !extensions.is_empty()) {
        let (remove, add) = (from.spec.extensions.clone(), extensions.clone());
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
