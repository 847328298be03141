//! Carries out a plan, step by step, with every step on record.
//!
//! Plain blocking code: there is one writer to a machine, and nothing can interrupt it in the middle
//! of a step. A failed step is undone together with all before it, by putting back what was there.

mod back;
mod packages;

use mco_api::MachineConfig;
use mco_core::{
    machine::{self, Machine, UnreadableConfig},
    plan::{NodePlan, Step},
};
use mco_host::{
    Host, HostError, KEYS, System, SystemError,
    log::{self, Priority},
    original,
    snapshot::SnapshotError,
};
use mco_ignition::config::Dropin;
use tracing::{info, warn};

pub use self::back::{put_back, take_back, undo};
use self::packages::Packages;
use crate::{
    disk::{self, DiskError},
    ledger::{self, Ledger, LedgerError, Progress, Stage},
};

/// The file that makes the daemon apply its config again.
pub const FORCE_FILE: &str = mco_core::diff::reconcile::FORCE_FILE;
pub(crate) const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";

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
    /// What was there before could not be put back.
    #[error("cannot put back what was there before")]
    PutBack(#[from] SnapshotError),
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
}

/// What carrying out a plan came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The new config is in force.
    Applied,
    /// It will be once the node rebooted, which it has yet to be told to.
    RebootDue,
}

/// Told of each step before it is taken.
pub type Witness<'w> = &'w mut dyn FnMut(&Step);

/// Begins an update and carries it out.
pub fn begin<S: System>(
    host: &mut Host<S>,
    from: &MachineConfig,
    to: &MachineConfig,
    plan: NodePlan,
    witness: Witness<'_>,
) -> Result<Outcome, ExecuteError> {
    let machines = (read(from)?, read(to)?);
    let ledger = ledger::begin(host, (from, &machines.0), (to, &machines.1), plan)?;
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
    ledger.before.sweep(&host.root)?;
    let mut packages = Packages::of(&from, &to);
    for (number, step) in ledger.plan.steps.iter().enumerate().skip(done) {
        if *step == Step::Reboot {
            ledger.before.drop_empty_folders(&host.root)?;
            let progress =
                Progress { stage: Stage::Rebooting, done: number, ..Progress::default() };
            ledger::advance(&host.root, &progress)?;
            return Ok(Outcome::RebootDue);
        }
        info!(step = %step, number = number + 1, "Taking step");
        log::write(&host.root, Priority::Info, &format!("{}: {step}", to.name));
        witness(step);
        let ends = ends_row(&ledger.plan.steps, number);
        if is_write(step) {
            host.root.put_off();
        }
        let mut taken = packages.at_hand(&mut host.system, step);
        taken = taken.and_then(|()| take(host, step, &from, &to, &ledger.to));
        if taken.is_err() || !ledger.plan.steps.get(number + 1).is_some_and(Step::stages) {
            packages.put_away(&mut host.system);
        }
        if ends || taken.is_err() {
            let settled = host.root.settle_all().map_err(HostError::from);
            taken = taken.and_then(|()| Ok(settled?));
        }
        if let Err(error) = taken {
            let fault = mco_cluster::report::chain(&error);
            warn!(step = %step, error = fault, "Step failed, undoing the update");
            let text = format!("{}: {step} failed, going back: {fault}", to.name);
            log::write(&host.root, Priority::Error, &text);
            let (stage, fault) = (Stage::Undoing, Some(fault));
            let progress = Progress { stage, done: number, fault, ..Progress::default() };
            ledger::advance(&host.root, &progress)?;
            return undo(host, ledger, &progress);
        }
        if ends {
            let progress = Progress { done: number + 1, ..Progress::default() };
            ledger::advance(&host.root, &progress)?;
        }
    }
    ledger.before.drop_empty_folders(&host.root)?;
    ledger::close(&host.root)?;
    Ok(Outcome::Applied)
}

/// As many files in a row share one sync of their directories, and one line of progress.
const ROW: usize = 64;

/// Whether a step writes one file and may be taken again.
fn is_write(step: &Step) -> bool {
    matches!(step, Step::WriteFile(_) | Step::WriteDropin { .. } | Step::WriteUnit(_))
}

/// Whether this step is to be on the disk, and on record, before the next is taken.
fn ends_row(steps: &[Step], number: usize) -> bool {
    let writes = |number: usize| steps.get(number).is_some_and(is_write);
    !(writes(number) && writes(number + 1)) || (number + 1).is_multiple_of(ROW)
}

/// Puts single parts of the config right that the machine has on record.
///
/// Each step is whole in itself and may be repeated, so no ledger is needed.
pub fn repair<S: System>(
    host: &mut Host<S>,
    config: &MachineConfig,
    steps: &[Step],
) -> Result<(), ExecuteError> {
    let machine = read(config)?;
    let mut units = false;
    for step in steps {
        let text = format!("{}: putting right: {step}", machine.name);
        log::write(&host.root, Priority::Info, &text);
        take(host, step, &machine, &machine, config)?;
        units |= !matches!(step, Step::WriteFile(_));
    }
    if units {
        host.system.reload_systemd()?;
    }
    Ok(())
}

/// Asks for the reboot that an update on record ends with.
pub fn reboot<S: System>(host: &mut Host<S>, config: &str) -> Result<(), ExecuteError> {
    reboot_because(host, &format!("Node will reboot into config {config}"))
}

/// Asks for a reboot.
pub fn reboot_because<S: System>(host: &mut Host<S>, why: &str) -> Result<(), ExecuteError> {
    info!("initiating reboot: {why}");
    log::write(&host.root, Priority::Info, &format!("initiating reboot: {why}"));
    host.system.reboot(why).map_err(ExecuteError::Reboot)?;
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
            let path = machine::dropin_path(unit, dropin);
            // Compat: what becomes of the path is the unit's business from now on
            // (pkg/daemon/update.go, deleteStaleData).
            if from.file(&path).is_some() && to.file(&path).is_none() {
                host.root.remove(&original::stamp_path(&path)).map_err(HostError::from)?;
            }
        }
        Step::RemoveDropin { unit, dropin } => {
            host.remove_dropin(unit, find_dropin(from, unit, dropin)?)?;
        }
        Step::WriteUnit(unit) => {
            let new = to.unit(unit).ok_or_else(|| absent(unit))?;
            host.write_unit(new)?;
            if let Some(old) = from.unit(unit).filter(|old| old.enabled == Some(true)) {
                host.part_companions(old, new, to)?;
            }
        }
        Step::MaskUnit(unit) => host.mask_unit(unit)?,
        Step::UnmaskUnit(unit) => host.unmask_unit(unit)?,
        Step::RemoveUnit(unit) => {
            host.remove_unit(from.unit(unit).ok_or_else(|| absent(unit))?)?;
        }
        Step::EnableUnit(unit) => host.enable_unit(unit)?,
        Step::DisableUnit(unit) => host.disable_unit(unit)?,
        // Compat: presets that cannot be had are no reason to fail (pkg/daemon/update.go).
        Step::PresetUnit(unit) => match host.system.preset(unit) {
            Err(error) if error.is_disk() => return Err(error.into()),
            Err(error) => info!("Could not preset unit {unit:?}: {error}"),
            Ok(()) => {}
        },
        Step::ProtectKubeconfig => {
            host.root.set_mode(KUBECONFIG, 0o600).map_err(HostError::from)?;
        }
        Step::WriteKeys => write_keys(host, to)?,
        Step::SetPassword => {
            host.system.set_password(ledger::CORE, to.password_hash().unwrap_or("*"))?;
        }
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
    info!("Writing SSH keys to {KEYS:?}");
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
    if lacks(system, service)? {
        return Ok(());
    }
    let failed = |source| ExecuteError::Reload { service: service.to_owned(), source };
    system.reload(service).map_err(failed)?;
    info!("{service} service reloaded successfully!");
    Ok(())
}

fn restart<S: System>(system: &mut S, service: &str, config: &str) -> Result<(), ExecuteError> {
    announce("Restart", config);
    if lacks(system, service)? {
        return Ok(());
    }
    let failed = |source| ExecuteError::Restart { service: service.to_owned(), source };
    system.restart(service).map_err(failed)?;
    info!("{service} service restarted successfully!");
    Ok(())
}

/// Whether this is the container engine of OpenShift on a machine that has another one: policies name it
/// by default, and what it would read there nobody reads.
fn lacks<S: System>(system: &S, service: &str) -> Result<bool, ExecuteError> {
    let is_engine = matches!(service, "crio" | "crio.service");
    let lacks = is_engine && !system.has_unit("crio.service")?;
    if lacks {
        info!("There is no CRI-O on this machine that could hear of it");
    }
    Ok(lacks)
}

fn announce(action: &str, config: &str) {
    info!("Performing post config change action: {action} for config {config}");
}

#[cfg(test)]
mod tests;
