//! Joins a running machine to a cluster with the config that the config server gave it.
//!
//! The record on the disk has the stage of the join, and every stage can be repeated: after a power
//! cut the unit [`UNIT`] continues the join. The kubelet is held until the config is complete,
//! because a kubelet that starts amid the apply would let the daemon take over the unfinished update.

mod record;
mod unit;

use mco_core::{
    drift,
    machine::Machine,
    plan::{self, ApplyMode, Circumstances, NodePlan, default_policies},
    served_config::ServedConfig,
};
use mco_host::{Host, HostError, RootError, System, SystemError, unit::UnitError};

pub use self::{
    record::{JoinRecord, JoinStage, RECORD, document, keep_document, load, save},
    unit::{REFUSED, UNIT, finish, hold, install, release},
};
use crate::{
    ParsedConfig,
    disk::{self, DiskError},
    execute::{self, ExecuteError, StepObserver},
    first_boot::{self, FirstBootError},
    ledger::{self, LedgerError, Resume},
    program::ProgramError,
};

/// File from which the kubelet's unit reads the name of the node.
const KUBELET_ENVIRONMENT: &str = "/etc/kubernetes/kubelet-env";
const NODE_NAME: &str = "KUBELET_NODE_NAME=";
const KUBELET: &str = "kubelet.service";

/// Units that apply settings of the kernel, with the directories of their files.
const SETTINGS: [(&str, &str); 2] = [
    ("systemd-modules-load.service", "/etc/modules-load.d/"),
    ("systemd-sysctl.service", "/etc/sysctl.d/"),
];
/// Container engines, which read their files at the start.
const ENGINES: [&str; 2] = ["crio.service", "containerd.service"];

/// A failed join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Another update of the machine is unfinished.
    #[error("the update to {config} is unfinished; `mco host status` shows the ways out of it")]
    Busy {
        /// Name of the config.
        config: String,
    },
    /// The config makes no node of the machine.
    #[error(
        "neither the machine nor the config {config} has a kubelet.service; the profile `full` of the \
         ControllerConfig adds it to the config"
    )]
    NoKubelet {
        /// Name of the config.
        config: String,
    },
    /// The server gave the kubelet no credentials.
    #[error(
        "the config {config} has no credentials for the kubelet; the config server must run without \
         --without-kubeconfig"
    )]
    NoKubeconfig {
        /// Name of the config.
        config: String,
    },
    /// The config cannot be planned.
    #[error(transparent)]
    Refused(#[from] plan::Refusal),
    /// The config could not be applied.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The facts about the machine cannot be read.
    #[error(transparent)]
    FirstBoot(#[from] FirstBootError),
    /// The machine cannot take the config.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The daemon's own files cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// This program cannot be copied.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A unit cannot be enabled or disabled.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A call to the operating system failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// The result of applying the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The machine has the config.
    Complete,
    /// The machine has the config after a reboot, which the caller must start.
    RebootDue,
}

/// Checks that the machine can join with this config, and plans the update.
pub fn plan<S: System>(host: &Host<S>, served: &ServedConfig) -> Result<NodePlan, JoinError> {
    let config = name(served);
    let has_unit = served.units.iter().any(|unit| unit == KUBELET);
    if !has_unit && !host.system.has_unit(KUBELET)? {
        return Err(JoinError::NoKubelet { config });
    }
    if !served.has_kubeconfig {
        return Err(JoinError::NoKubeconfig { config });
    }
    let (source, target) = configs(host, served)?;
    let at = Circumstances { mode: ApplyMode::FirstBoot, ..Circumstances::default() };
    let plan = plan::node(&source.machine, &target.machine, &default_policies(), &at)?;
    host.check_paths(&source.machine, &target.machine, &plan)?;
    Ok(plan)
}

fn configs<S: System>(
    host: &Host<S>,
    served: &ServedConfig,
) -> Result<(ParsedConfig, ParsedConfig), JoinError> {
    let source = ParsedConfig::read(first_boot::present(host, &served.target)?)?;
    Ok((source, ParsedConfig::read(served.target.clone())?))
}

fn name(served: &ServedConfig) -> String {
    served.target.metadata.name.clone().unwrap_or_default()
}

/// Applies the config, or continues an apply that was interrupted.
pub fn apply<S: System>(
    host: &mut Host<S>,
    served: &ServedConfig,
    observer: StepObserver<'_>,
) -> Result<Applied, JoinError> {
    let changes_system = if let Some(changes_system) = proceed(host, served, observer)? {
        changes_system
    } else {
        let plan = plan(host, served)?;
        let changes_system = !plan.diff.system().is_empty();
        let (source, target) = configs(host, served)?;
        execute::begin(host, &source, &target, plan, observer)?;
        changes_system
    };
    // Without the files that only a new machine gets: the daemon must not remove them with the next
    // update.
    disk::record_config(&host.root, &served.recorded)?;
    disk::tidy_first_boot(&host.root)?;
    Ok(if changes_system { Applied::RebootDue } else { Applied::Complete })
}

/// Continues an interrupted apply; returns true if it changes the operating system, and `None` if
/// there is nothing to continue.
fn proceed<S: System>(
    host: &mut Host<S>,
    served: &ServedConfig,
    observer: StepObserver<'_>,
) -> Result<Option<bool>, JoinError> {
    let Some((update, progress)) = ledger::open(&host.root)? else { return Ok(None) };
    let config = update.to.metadata.name.clone().unwrap_or_default();
    if config != name(served)
        || update.from.metadata.name.as_deref() != Some(&Machine::blank().name)
    {
        return Err(JoinError::Busy { config });
    }
    let booted = host.system.facts()?.boot_id;
    match ledger::resume(&progress, &update.boot_id, &booted) {
        Resume::Undo => execute::roll_back_failed(host, &update, &progress).map(drop)?,
        Resume::Continue(_) => execute::proceed(host, &update, &progress, observer).map(drop)?,
        // A first boot has no step that reboots.
        Resume::Reboot | Resume::Verify => ledger::close(&host.root)?,
    }
    Ok(Some(!update.plan.diff.system().is_empty()))
}

/// Returns true if the machine has booted the operating system of the config.
pub fn has_booted<S: System>(host: &Host<S>, served: &ServedConfig) -> Result<bool, JoinError> {
    let facts = host.system.facts()?;
    let (image, arguments) = (facts.booted_image.as_deref(), &facts.kernel_arguments);
    Ok(drift::compare_system(&served.target.spec, image, arguments).is_none())
}

/// Writes the name under which the kubelet registers, if it is not the machine's own.
pub fn set_node_name<S: System>(host: &Host<S>, name: &str) -> Result<(), JoinError> {
    let before = host.root.read(KUBELET_ENVIRONMENT)?.unwrap_or_default();
    let text = with_node_name(&String::from_utf8_lossy(&before), name);
    if text.as_bytes() != before {
        host.root.write(KUBELET_ENVIRONMENT, text.as_bytes(), 0o644)?;
    }
    Ok(())
}

fn with_node_name(text: &str, name: &str) -> String {
    let others = text.lines().filter(|line| !line.starts_with(NODE_NAME));
    let lines = others.map(str::to_owned).chain([format!("{NODE_NAME}{name}")]);
    lines.map(|line| line + "\n").collect()
}

/// Starts what the config enables, without a reboot. `warn` gets failures of units that a node can
/// do without.
pub fn start_units<S: System>(
    host: &mut Host<S>,
    served: &ServedConfig,
    warn: &mut dyn FnMut(&str, &SystemError),
) -> Result<(), JoinError> {
    let target = Machine::read(&served.target)
        .map_err(|source| ExecuteError::Config { config: name(served), source })?;
    host.system.reload_systemd()?;
    let files = &target.config.storage.files;
    let mut units: Vec<String> = Vec::new();
    for (unit, folder) in SETTINGS {
        if files.iter().any(|file| file.path.starts_with(folder)) {
            units.push(unit.to_owned());
        }
    }
    for unit in ENGINES {
        if host.system.has_unit(unit)? {
            units.push(unit.to_owned());
        }
    }
    units.extend(served.units.iter().filter(|unit| !ENGINES.contains(&unit.as_str())).cloned());
    if !units.iter().any(|unit| unit == KUBELET) {
        units.push(KUBELET.to_owned());
    }
    for unit in units {
        match host.system.restart(&unit) {
            Err(error) if unit == KUBELET => return Err(error.into()),
            Err(error) => warn(&unit, &error),
            Ok(()) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
