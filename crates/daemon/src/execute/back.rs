//! The way back: what an update touched is put back as it was.

use mco_core::plan::Step;
use mco_host::{
    Host, Staged, System, SystemError,
    log::{self, Priority},
};
use tracing::warn;

use super::{ExecuteError, Outcome};
use crate::{
    confirm::{self, TakenBack},
    ledger::{self, Ledger, Progress, Stage},
};

/// Undoes an update on record that failed.
///
/// Always ends in an error: that of the step that failed, or why it could not be undone.
pub fn undo<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Outcome, ExecuteError> {
    let first = progress.fault.clone().unwrap_or_else(|| "taken back on request".to_owned());
    if let Some(back_in) = &progress.back_in {
        if progress.stage == Stage::Undoing {
            return go_back(host, ledger, progress);
        }
        if *back_in != host.system.facts()?.boot_id {
            ledger::forget(&host.root)?;
            return Err(ExecuteError::Undone(first));
        }
        return Ok(Outcome::RebootDue);
    }
    match put_back(host, ledger, progress) {
        Ok(_) => Err(ExecuteError::Undone(first)),
        Err(source) => Err(ExecuteError::Undo { first, source: Box::new(source) }),
    }
}

/// Takes back an update that the machine has rebooted into: everything is as before it after another
/// reboot, and the update is not tried again by itself.
pub fn take_back<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    why: &str,
) -> Result<Outcome, ExecuteError> {
    let progress = Progress {
        stage: Stage::Undoing,
        done: ledger.plan.steps.len(),
        fault: Some(why.to_owned()),
        back_in: Some(host.system.facts()?.boot_id),
        ..Progress::default()
    };
    let config = ledger.to.metadata.name.as_deref().unwrap_or_default();
    log::write(&host.root, Priority::Error, &format!("{config}: taken back: {why}"));
    ledger::advance(&host.root, &progress)?;
    go_back(host, ledger, &progress)
}

fn go_back<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Outcome, ExecuteError> {
    restore(host, ledger, progress)?;
    let config = ledger.to.metadata.name.clone().unwrap_or_default();
    let why = progress.fault.clone().unwrap_or_default();
    confirm::refuse_from_now_on(&host.root, &TakenBack { config, why })?;
    ledger::advance(&host.root, &Progress { stage: Stage::Returning, ..progress.clone() })?;
    Ok(Outcome::RebootDue)
}

/// Puts back everything that an update on record touched, and takes it off the record.
pub fn put_back<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Staged, ExecuteError> {
    let staged = restore(host, ledger, progress)?;
    ledger::forget(&host.root)?;
    Ok(staged)
}

fn restore<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Staged, ExecuteError> {
    let pack = ledger::pack(&host.root, ledger)?;
    ledger.before.restore(&host.root, &pack)?;
    if let Some(password) = &ledger.password {
        host.system.set_password(ledger::CORE, password)?;
    }
    let staged = match &ledger.staged {
        Some(staged) => host.system.restage(staged)?,
        None => Staged::Back,
    };
    // The files are right again; services that do not hear of it are no reason to stay in between.
    if !ledger.before.units.is_empty() {
        tell(host.system.reload_systemd());
    }
    for step in ledger.plan.steps.iter().take(progress.done + 1) {
        if let Step::ReloadService(service) = step {
            tell(host.system.reload(service));
        } else if let Step::RestartService(service) = step {
            tell(host.system.restart(service));
        }
    }
    Ok(staged)
}

fn tell(done: Result<(), SystemError>) {
    if let Err(error) = done {
        warn!(%error, "A service has not heard that the config went back");
    }
}
