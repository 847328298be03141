//! Executes a plan step by step and records every step in the ledger.
//!
//! Plain blocking code: there is one writer to a machine, and nothing can interrupt a step. A
//! failed step is rolled back together with all steps before it, by restoring the snapshot. A
//! service that cannot be reloaded or restarted is different: the disk has the new config by then,
//! so that only the service is retried.

mod packages;
mod roll_back;
mod service;

use mco_api::MachineConfig;
use mco_core::{
    machine::{self, Machine, UnreadableConfig},
    plan::{NodePlan, Step},
};
use mco_host::{
    Host, HostError, KEYS, Root, System, SystemError, kubelet_credential_files,
    log::{self, Priority},
    original,
    snapshot::SnapshotError,
};
use mco_ignition::config::Dropin;
use tracing::{info, warn};

use self::packages::Packages;
pub use self::roll_back::{roll_back, roll_back_booted, roll_back_failed, withdraw};
use crate::{
    ParsedConfig,
    config::parse,
    disk::{self, DiskError},
    force,
    ledger::{self, Ledger, LedgerError, Progress, Resume, Stage},
    report::chain,
};

/// The file that makes the daemon apply its config again.
pub const FORCE_FILE: &str = mco_core::diff::reconcile::FORCE_FILE;
/// The kubelet's credentials for its bootstrap.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";

/// A failed update.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// A part of the config could not be written or removed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A service could not be reloaded.
    #[error("could not apply update: reloading {service} configuration failed. Error: {source}")]
    Reload {
        /// Name of the service.
        service: String,
        /// The error of systemd.
        source: SystemError,
    },
    /// A service could not be restarted.
    #[error("could not apply update: restarting {service} service failed. Error: {source}")]
    Restart {
        /// Name of the service.
        service: String,
        /// The error of systemd.
        source: SystemError,
    },
    /// The machine could not be rebooted.
    #[error("reboot command failed, something is seriously wrong")]
    Reboot(#[source] SystemError),
    /// A recorded config cannot be parsed.
    #[error("parsing config {config} failed")]
    Config {
        /// Name of the config.
        config: String,
        /// The parse error.
        source: UnreadableConfig,
    },
    /// A step refers to a part that its config does not have.
    #[error("plan refers to {0}, which is not in the config")]
    Absent(String),
    /// The snapshot could not be restored.
    #[error("failed to restore the snapshot")]
    Restore(#[from] SnapshotError),
    /// The rollback failed, too.
    #[error("error rolling back files writes: [{first}, {source}]")]
    Undo {
        /// The error that caused the rollback.
        first: String,
        /// The error of the rollback.
        source: Box<ExecuteError>,
    },
    /// The update was rolled back because of this error.
    #[error("{0}")]
    Undone(String),
    /// The daemon's own files cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A call to the operating system failed.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// The result of executing a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The new config is applied.
    Applied,
    /// The new config takes effect after a reboot, which the caller must start.
    RebootDue,
}

/// Called with each step before it is executed.
pub type StepObserver<'w> = &'w mut dyn FnMut(&Step);

/// Records an update in the ledger and executes it.
pub fn begin<S: System>(
    host: &mut Host<S>,
    from: &ParsedConfig,
    to: &ParsedConfig,
    plan: NodePlan,
    observer: StepObserver<'_>,
) -> Result<Outcome, ExecuteError> {
    let ledger =
        ledger::begin(host, (&from.object, &from.machine), (&to.object, &to.machine), plan)?;
    execute(host, &ledger, &Progress::default(), (&from.machine, &to.machine), observer)
}

/// Executes a recorded update again from its first step, because the machine has booted its previous
/// system.
pub fn apply_again<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    observer: StepObserver<'_>,
) -> Result<Outcome, ExecuteError> {
    let again_in = Some(host.system.facts()?.boot_id);
    let progress = Progress { again_in, ..Progress::default() };
    ledger::advance(&host.root, &progress)?;
    proceed(host, ledger, &progress, observer)
}

/// Executes a recorded update from the first step that is not completed, or from its first step if
/// the machine has rebooted since: a staged deployment is lost with the power.
pub fn proceed<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
    observer: StepObserver<'_>,
) -> Result<Outcome, ExecuteError> {
    let (from, to) = (parse(&ledger.from)?, parse(&ledger.to)?);
    let booted = host.system.facts()?.boot_id;
    let done = match ledger::resume(progress, &ledger.boot_id, &booted) {
        Resume::Continue(done) => done,
        Resume::Reboot | Resume::Verify | Resume::Undo => progress.done,
    };
    let progress = Progress { done, ..progress.clone() };
    execute(host, ledger, &progress, (&from, &to), observer)
}

fn execute<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
    (from, to): (&Machine, &Machine),
    observer: StepObserver<'_>,
) -> Result<Outcome, ExecuteError> {
    let attempt = Progress { again_in: progress.again_in.clone(), ..Progress::default() };
    ledger.before.remove_temporary(&host.root)?;
    let mut packages = Packages::of(from, to);
    for (number, step) in ledger.plan.steps.iter().enumerate().skip(progress.done) {
        if *step == Step::Reboot {
            ledger.before.remove_empty_link_directories(&host.root)?;
            let completed_in =
                Some(host.system.facts()?.boot_id).filter(|now| *now != ledger.boot_id);
            // A deployment that is lost before the next boot may not show in image and arguments.
            let staged = ledger.plan.steps.iter().any(Step::stages) && host.system.has_staged()?;
            let stage = Stage::Rebooting;
            let progress = Progress { stage, done: number, completed_in, staged, ..attempt };
            ledger::advance(&host.root, &progress)?;
            return Ok(Outcome::RebootDue);
        }
        info!(%step, number = number + 1, "Executing step");
        log::write(&host.root, Priority::Info, &format!("{}: {step}", to.name));
        observer(step);
        let ends_batch = ends_batch(&ledger.plan.steps, number);
        if is_write(step) {
            host.root.defer_syncs();
        }
        let mut result = packages.provide(&mut host.system, step);
        result = result.and_then(|()| execute_step(host, step, from, to, &ledger.to));
        if result.is_err() || !ledger.plan.steps.get(number + 1).is_some_and(Step::stages) {
            packages.withdraw(&mut host.system);
        }
        if ends_batch || result.is_err() {
            let synced = host.root.sync_deferred().map_err(HostError::from);
            result = result.and_then(|()| Ok(synced?));
        }
        if let Err(error) = result {
            let fault = chain(&error);
            if step.is_service_action() {
                let progress = Progress { done: number, fault: Some(fault), ..attempt };
                ledger::advance(&host.root, &progress)?;
                return Err(error);
            }
            warn!(%step, error = fault, "Step failed, rolling back the update");
            let text = format!("{}: {step} failed, rolling back: {fault}", to.name);
            log::write(&host.root, Priority::Error, &text);
            let (stage, fault) = (Stage::Undoing, Some(fault));
            let progress = Progress { stage, done: number, fault, ..Progress::default() };
            ledger::advance(&host.root, &progress)?;
            return roll_back_failed(host, ledger, &progress);
        }
        if ends_batch {
            let progress = Progress { done: number + 1, ..attempt.clone() };
            ledger::advance(&host.root, &progress)?;
        }
    }
    ledger.before.remove_empty_link_directories(&host.root)?;
    ledger::close(&host.root)?;
    Ok(Outcome::Applied)
}

/// Number of file writes in a row that share one sync of their directories and one line of
/// progress.
const BATCH: usize = 64;

/// Returns true if a step writes one file and can be repeated.
fn is_write(step: &Step) -> bool {
    matches!(step, Step::WriteFile(_) | Step::WriteDropin { .. } | Step::WriteUnit(_))
}

/// Returns true if this step must be on disk and in the ledger before the next is executed.
fn ends_batch(steps: &[Step], number: usize) -> bool {
    let writes = |number: usize| steps.get(number).is_some_and(is_write);
    !(writes(number) && writes(number + 1)) || (number + 1).is_multiple_of(BATCH)
}

/// Repairs single parts of the machine's recorded config.
///
/// Each step is complete in itself and can be repeated, so no ledger is needed.
pub fn repair<S: System>(
    host: &mut Host<S>,
    config: &ParsedConfig,
    steps: &[Step],
) -> Result<(), ExecuteError> {
    let ParsedConfig { object, machine } = config;
    let mut units = false;
    for step in steps {
        let text = format!("{}: repairing drift: {step}", machine.name);
        log::write(&host.root, Priority::Info, &text);
        execute_step(host, step, machine, machine, object)?;
        units |= !matches!(step, Step::WriteFile(_));
    }
    if units {
        host.system.reload_systemd()?;
    }
    Ok(())
}

/// Starts the reboot that completes a recorded update.
pub fn reboot<S: System>(host: &mut Host<S>, config: &str) -> Result<(), ExecuteError> {
    reboot_because(host, &format!("Node will reboot into config {config}"))
}

/// Starts a reboot with this reason in the journal.
pub fn reboot_because<S: System>(host: &mut Host<S>, why: &str) -> Result<(), ExecuteError> {
    info!("initiating reboot: {why}");
    log::write(&host.root, Priority::Info, &format!("initiating reboot: {why}"));
    host.system.reboot(why).map_err(ExecuteError::Reboot)?;
    info!("reboot successful");
    Ok(())
}

/// Executes one step. Makes no decisions.
fn execute_step<S: System>(
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
            // Compat: the path belongs to the unit from now on (pkg/daemon/update.go,
            // deleteStaleData).
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
                host.disable_stale_companions(old, new, to)?;
            }
        }
        Step::MaskUnit(unit) => host.mask_unit(unit)?,
        Step::UnmaskUnit(unit) => host.unmask_unit(unit)?,
        Step::RemoveUnit(unit) => {
            host.remove_unit(from.unit(unit).ok_or_else(|| absent(unit))?)?;
        }
        Step::EnableUnit(unit) => {
            host.enable_unit(to.unit(unit).ok_or_else(|| absent(unit))?)?;
        }
        Step::DisableUnit(unit) => host.disable_unit(unit)?,
        // Compat: a failed preset does not fail the update (pkg/daemon/update.go).
        Step::PresetUnit(unit) => match host.system.preset(unit) {
            Err(error) if error.is_disk() => return Err(error.into()),
            Err(error) => info!("Could not preset unit {unit:?}: {error}"),
            Ok(()) => {}
        },
        Step::ProtectKubeconfig => protect_credentials(&host.root, to)?,
        Step::WriteKeys => write_keys(host, to)?,
        // The step before has logged that the user is missing.
        Step::SetPassword if !host.has_managed_user()? => {}
        Step::SetPassword => {
            host.system.set_password(ledger::CORE, to.password_hash().unwrap_or("*"))?;
        }
        Step::RecordConfig => {
            host.remove_leaked_links(to)?;
            disk::record_config(&host.root, target)?;
        }
        Step::RemoveForceFile => {
            force::withdraw(&host.root).map_err(HostError::from)?;
        }
        Step::StageOs(image) => host.system.stage_os(image)?,
        Step::StageKernelArguments { remove, add } => {
            host.system.stage_kernel_arguments(remove, add)?;
        }
        Step::StageKernel(kernel) => host.system.stage_kernel(kernel)?,
        Step::StageExtensions { remove, add } => host.system.stage_extensions(remove, add)?,
        Step::ReloadSystemd => service::reload_systemd(&mut host.system, &to.name)?,
        Step::ReloadService(name) => service::reload(&mut host.system, name, &to.name)?,
        Step::RestartService(name) => service::restart(&mut host.system, name, &to.name)?,
        // A rollback has no reboot step, and an update stops before it.
        Step::Reboot => {}
    }
    Ok(())
}

/// Restricts the kubelet's credentials to root. Where a config has a file at the path of another
/// distribution's credentials, the file is none: the kubelet's settings, for instance.
fn protect_credentials(root: &Root, to: &Machine) -> Result<(), HostError> {
    for path in kubelet_credential_files(root)? {
        if path == KUBECONFIG || to.file(&path).is_none() {
            root.set_mode(&path, 0o600)?;
        }
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

#[cfg(test)]
mod tests;
