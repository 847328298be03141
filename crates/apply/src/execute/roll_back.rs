//! Rolls an update back: restores everything that it touched.

use mco_core::plan::Step;
use mco_host::{
    Host, Restored, System, SystemError,
    log::{self, Priority},
};
use tracing::warn;

use super::{ExecuteError, Outcome};
use crate::{
    confirm::{self, RolledBackConfig},
    disk,
    ledger::{self, Ledger, Progress, Stage},
};

/// Rolls back a recorded update that failed.
///
/// Always returns an error: that of the failed step, or that of the rollback.
pub fn roll_back_failed<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Outcome, ExecuteError> {
    let first = progress.fault.clone().unwrap_or_else(|| "rolled back on request".to_owned());
    if let Some(back_in) = &progress.back_in {
        let booted = host.system.facts()?.boot_id;
        if progress.stage == Stage::Returning && *back_in == booted {
            return Ok(Outcome::RebootDue);
        }
        if progress.stage == Stage::Returning && is_restored(host, ledger)? {
            ledger::forget(&host.root)?;
            return Err(ExecuteError::Undone(first));
        }
        let stage = Stage::Undoing;
        let progress = Progress { stage, back_in: Some(booted), ..progress.clone() };
        ledger::advance(&host.root, &progress)?;
        return restore_for_reboot(host, ledger, &progress);
    }
    match roll_back(host, ledger, progress) {
        Ok(_) => Err(ExecuteError::Undone(first)),
        Err(source) => Err(ExecuteError::Undo { first, source: Box::new(source) }),
    }
}

/// Rolls back an update of which only a service action is left, because another config is desired.
pub fn withdraw<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<(), ExecuteError> {
    // Recorded first: after a crash the actions must not be retried on restored files.
    let progress = Progress { stage: Stage::Undoing, ..progress.clone() };
    ledger::advance(&host.root, &progress)?;
    roll_back(host, ledger, &progress)?;
    Ok(())
}

/// Returns true if the machine has the files of before the update.
///
/// Each deployment of an image-based system has an `/etc` of its own. The update was written to that
/// of the previous deployment, which still has it when the machine goes back there.
fn is_restored<S: System>(host: &Host<S>, ledger: &Ledger) -> Result<bool, ExecuteError> {
    let current = disk::current_config(&host.root)?;
    Ok(current.as_ref() != Some(&ledger.to) || ledger.from == ledger.to)
}

/// Rolls back an update that the machine has rebooted into. Another reboot completes the rollback,
/// and the update is not retried by itself.
pub fn roll_back_booted<S: System>(
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
    log::write(&host.root, Priority::Error, &format!("{config}: rolled back: {why}"));
    ledger::advance(&host.root, &progress)?;
    restore_for_reboot(host, ledger, &progress)
}

fn restore_for_reboot<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Outcome, ExecuteError> {
    restore(host, ledger, progress)?;
    let config = ledger.to.metadata.name.clone().unwrap_or_default();
    // A rollback on request says nothing against the config.
    if let Some(why) = progress.fault.clone() {
        confirm::record_rolled_back(&host.root, &RolledBackConfig { config, why })?;
    }
    ledger::advance(&host.root, &Progress { stage: Stage::Returning, ..progress.clone() })?;
    Ok(Outcome::RebootDue)
}

/// Restores everything that a recorded update touched. Removes it from the ledger, unless the machine
/// has to reboot into its previous deployment, which has files of its own to restore.
pub fn roll_back<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Restored, ExecuteError> {
    let staged = restore(host, ledger, progress)?;
    match staged {
        Restored::Done => ledger::forget(&host.root)?,
        Restored::NeedsReboot => {
            let (stage, back_in) = (Stage::Returning, Some(host.system.facts()?.boot_id));
            ledger::advance(&host.root, &Progress { stage, back_in, ..progress.clone() })?;
        }
    }
    Ok(staged)
}

fn restore<S: System>(
    host: &mut Host<S>,
    ledger: &Ledger,
    progress: &Progress,
) -> Result<Restored, ExecuteError> {
    let pack = ledger::pack(&host.root, ledger)?;
    ledger.before.restore(&host.root, &pack)?;
    if let Some(password) = &ledger.password {
        host.system.set_password(ledger::CORE, password)?;
    }
    let staged = match &ledger.staged {
        Some(staged) => host.system.restore_staged(staged)?,
        None => Restored::Done,
    };
    // The files are restored; a service that cannot be reloaded does not stop the rollback.
    if !ledger.before.units.is_empty() {
        log_failure(host.system.reload_systemd());
    }
    for step in ledger.plan.steps.iter().take(progress.done + 1) {
        if let Step::ReloadService(service) = step {
            log_failure(host.system.reload(service));
        } else if let Step::RestartService(service) = step {
            log_failure(host.system.restart(service));
        }
    }
    Ok(staged)
}

fn log_failure(done: Result<(), SystemError>) {
    if let Err(error) = done {
        warn!(%error, "Failed to reload a service after the rollback");
    }
}
