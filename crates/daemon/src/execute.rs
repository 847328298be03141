//! Carries out a plan, step by step, with every step on record.
//!
//! Plain blocking code: there is one writer to a machine, and nothing can interrupt it in the middle
//! of a step. A failed step is undone together with all before it, by the plan for the way back.

use mco_api::MachineConfig;
use mco_core::{
    machine::{Machine, UnreadableConfig},
    plan::{self, Circumstances, NodePlan, Phase, Step, default_policies},
};
use mco_host::{Host, HostError, System, SystemError};
use mco_ignition::config::Dropin;
use tracing::{info, warn};

use crate::{
    disk::{self, DiskError},
    ledger::{self, Ledger, LedgerError, Progress, Stage},
};

/// The file that makes the daemon apply its config again.
pub const FORCE_FILE: &str = mco_core::diff::reconcile::FORCE_FILE;
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";

/// Why a node did not get its new config.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// A part of the config could not be put on the machine or taken away.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A service could not be reloaded.
    #[error("could not apply update: reloading {service} configuration failed. Error: {source}")]
    Reload {
        /// The service.
        service: String,
        /// Why not.
        source: SystemError,
    },
    /// A service could not be restarted.
    #[error("could not apply update: restarting {service} service failed. Error: {source}")]
    Restart {
        /// The service.
        service: String,
        /// Why not.
        source: SystemError,
    },
    /// The machine could not be rebooted.
    #[error("reboot command failed, something is seriously wrong")]
    Reboot(#[source] SystemError),
    /// A config on record cannot be read.
    #[error("parsing config {config} failed")]
    Config {
        /// The config.
        config: String,
        /// Why not.
        source: UnreadableConfig,
    },
    /// A step names something that its config does not have.
    #[error("the plan names {0}, which the config does not have")]
    Absent(String),
    /// What was done could not be undone either.
    #[error("error rolling back files writes: [{first}, {source}]")]
    Undo {
        /// Why it was to be undone.
        first: String,
        /// Why it could not.
        source: Box<ExecuteError>,
    },
    /// What was done is undone.
    #[error("{0}")]
    Undone(String),
    /// The daemon's own files cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The system does not answer.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The process dies here, as far as a test is concerned.
    #[error("stopped after step {0}")]
    Halted(usize),
}

/// What carrying out a plan came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The new config is in force.
    Applied,
    /// It will be once the node rebooted, which it has yet to be told to.
    RebootDue,
}

/// Called after each step is on record; an error ends everything at once, as a crash would.
pub type Witness<'w> = &'w mut dyn FnMut(&Step) -> Result<(), ExecuteError>;

/// Begins an update and carries it out.
pub fn begin<S: System>(
    host: &mut Host<S>,
    from: &MachineConfig,
    to: &MachineConfig,
    plan: NodePlan,
    witness: Witness<'_>,
) -> Result<Outcome, ExecuteError> {
    let boot_id = host.system.facts()?.boot_id;
    let ledger = Ledger { from: from.clone(), to: to.clone(), boot_id, plan };
    ledger::begin(&host.root, &ledger)?;
    proceed(host, &ledger, 0, witness)
}

/// Carries out an update on record from a step on.
pub fn proceed<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    done: usize,
    witness: Witness<'_>,
) -> Result<Outcome, ExecuteError> {
    let (from, to) = (read(&ledger.from)?, read(&ledger.to)?);
    for (number, step) in ledger.plan.steps.iter().enumerate().skip(done) {
        if *step == Step::Reboot {
            let stage = Stage::Rebooting;
            ledger::advance(&host.root, &Progress { stage, done: number, fault: None })?;
            witness(step)?;
            return Ok(Outcome::RebootDue);
        }
        info!(step = %step, number = number + 1, "Taking step");
        if let Err(error) = take(host, step, &from, &to, &ledger.to) {
            let fault = mco_cluster::report::chain(&error);
            warn!(step = %step, error = fault, "Step failed, undoing the update");
            let progress = Progress { stage: Stage::Undoing, done: 0, fault: Some(fault) };
            ledger::advance(&host.root, &progress)?;
            return undo(host, ledger, &progress, witness);
        }
        ledger::advance(&host.root, &Progress { done: number + 1, ..Progress::default() })?;
        witness(step)?;
    }
    ledger::close(&host.root)?;
    Ok(Outcome::Applied)
}

/// Undoes an update on record from a step of the way back on.
///
/// Always ends in an error: that of the step that failed, or why it could not be undone.
pub fn undo<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
    witness: Witness<'_>,
) -> Result<Outcome, ExecuteError> {
    let first = progress.fault.clone().unwrap_or_default();
    let (from, to) = (read(&ledger.from)?, read(&ledger.to)?);
    let at = Circumstances { phase: Phase::WayBack, ..Circumstances::default() };
    let back = plan::node(&to, &from, &default_policies(), &at)
        .map_err(|refusal| ExecuteError::Undone(format!("{first}; {refusal}")))?;
    for (number, step) in back.steps.iter().enumerate().skip(progress.done) {
        if let Err(source) = take(host, step, &to, &from, &ledger.from) {
            return Err(ExecuteError::Undo { first, source: Box::new(source) });
        }
        let fault = Some(first.clone());
        let progress = Progress { stage: Stage::Undoing, done: number + 1, fault };
        ledger::advance(&host.root, &progress)?;
        witness(step)?;
    }
    ledger::close(&host.root)?;
    Err(ExecuteError::Undone(first))
}

/// Asks for the reboot that an update on record ends with.
pub fn reboot<S: System>(host: &mut Host<S>, config: &str) -> Result<(), ExecuteError> {
    let why = format!("Node will reboot into config {config}");
    info!("initiating reboot: {why}");
    host.system.reboot(&why).map_err(ExecuteError::Reboot)?;
    info!("reboot successful");
    Ok(())
}

fn read(config: &MachineConfig) -> Result<Machine, ExecuteError> {
    let name = config.metadata.name.clone().unwrap_or_default();
    Machine::read(config).map_err(|source| ExecuteError::Config { config: name, source })
}

/// Takes one step. Interprets; never chooses.
fn take<S: System>(
    host: &mut Host<S>,
    step: &Step,
    from: &Machine,
    to: &Machine,
    target: &MachineConfig,
) -> Result<(), ExecuteError> {
    let absent = |name: &str| ExecuteError::Absent(name.to_owned());
    match step {
        Step::WriteFile(path) => {
            info!("Writing file {path:?}");
            host.write_file(to.file(path).ok_or_else(|| absent(path))?)?;
        }
        Step::RemoveFile(path) => {
            host.remove_file(from.file(path).ok_or_else(|| absent(path))?)?;
            info!("Removed stale file {path:?}");
        }
        Step::WriteDropin { unit, dropin } => {
            host.write_dropin(unit, find_dropin(to, unit, dropin)?)?;
        }
        Step::RemoveDropin { unit, dropin } => {
            host.remove_dropin(unit, find_dropin(from, unit, dropin)?)?;
        }
        Step::WriteUnit(unit) => host.write_unit(to.unit(unit).ok_or_else(|| absent(unit))?)?,
        Step::MaskUnit(unit) => host.mask_unit(unit)?,
        Step::UnmaskUnit(unit) => host.unmask_unit(unit)?,
        Step::RemoveUnit(unit) => {
            host.remove_unit(from.unit(unit).ok_or_else(|| absent(unit))?)?;
        }
        Step::EnableUnit(unit) => host.enable_unit(unit)?,
        Step::DisableUnit(unit) => host.disable_unit(unit)?,
        // Compat: presets that cannot be had are no reason to fail (pkg/daemon/update.go).
        Step::PresetUnit(unit) => {
            if let Err(error) = host.system.preset(unit) {
                info!("Could not preset unit {unit:?}: {error}");
            }
        }
        Step::ProtectKubeconfig => {
            host.root.set_mode(KUBECONFIG, 0o600).map_err(HostError::from)?;
        }
        Step::WriteKeys => write_keys(host, to)?,
        Step::SetPassword => host.system.set_password("core", to.password_hash().unwrap_or("*"))?,
        Step::RecordConfig => {
            host.remove_leaked_links(to)?;
            disk::record_config(&host.root, target)?;
        }
        Step::RemoveForceFile => {
            host.root.remove(FORCE_FILE).map_err(HostError::from)?;
        }
        Step::StageOs(image) => host.system.stage_os(image)?,
        Step::StageKernelArguments { remove, add } => {
            host.system.stage_kernel_arguments(remove, add)?;
        }
        Step::StageKernel(kernel) => host.system.stage_kernel(kernel)?,
        Step::StageExtensions { remove, add } => host.system.stage_extensions(remove, add)?,
        Step::ReloadSystemd => reload_systemd(&mut host.system, &to.name)?,
        Step::ReloadService(service) => reload(&mut host.system, service, &to.name)?,
        Step::RestartService(service) => restart(&mut host.system, service, &to.name)?,
        // The way back has none, and the way there ends before it.
        Step::Reboot => {}
    }
    Ok(())
}

fn find_dropin<'m>(
    machine: &'m Machine,
    unit: &str,
    name: &str,
) -> Result<&'m Dropin, ExecuteError> {
    let dropins = machine.unit(unit).map(|unit| unit.dropins.as_slice()).unwrap_or_default();
    let found = dropins.iter().find(|dropin| dropin.name == name);
    found.ok_or_else(|| ExecuteError::Absent(format!("{unit}/{name}")))
}

fn write_keys<S: System>(host: &mut Host<S>, to: &Machine) -> Result<(), ExecuteError> {
    if !host.write_keys(&to.ssh_keys())? {
        info!(
            "core user does not exist, and creating users is not supported, \
             so ignoring configuration specified for core user"
        );
    }
    Ok(())
}

fn reload_systemd<S: System>(system: &mut S, config: &str) -> Result<(), ExecuteError> {
    announce("DaemonReload", config);
    let service = "daemon-reload".to_owned();
    system.reload_systemd().map_err(|source| ExecuteError::Reload { service, source })
}

fn reload<S: System>(system: &mut S, service: &str, config: &str) -> Result<(), ExecuteError> {
    announce("Reload", config);
    let failed = |source| ExecuteError::Reload { service: service.to_owned(), source };
    system.reload(service).map_err(failed)?;
    info!("{service} service reloaded successfully!");
    Ok(())
}

fn restart<S: System>(system: &mut S, service: &str, config: &str) -> Result<(), ExecuteError> {
    announce("Restart", config);
    let failed = |source| ExecuteError::Restart { service: service.to_owned(), source };
    system.restart(service).map_err(failed)?;
    info!("{service} service restarted successfully!");
    Ok(())
}

fn announce(action: &str, config: &str) {
    info!("Performing post config change action: {action} for config {config}");
}

#[cfg(test)]
mod tests;
