//! Confirms or rolls back the config that the machine has rebooted into, before the daemon joins
//! the cluster.
//!
//! Must not depend on the cluster: joining it may be the very thing that the new config broke.

use std::{future::Future, time::Duration};

use mco_cluster::{Shutdown, report::chain};
use mco_host::{CheckResult, Host, System};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{CHECK_INTERVAL, ConfirmPolicy, Health, HealthDecision, decide, policy, standby};
use crate::{
    DaemonExit,
    execute::{self, ExecuteError},
    ledger::{self, Ledger, Progress, Resume, Stage},
};

/// Time that each start of a daemon counts as, so that a daemon that keeps crashing runs out of
/// time, too.
const START_COST: Duration = Duration::from_secs(10);

/// Probes the API server.
pub trait Probe: Send + Sync {
    /// Checks that the API server can be reached.
    fn check_api_server(&self) -> impl Future<Output = CheckResult> + Send;
}

/// The result of a confirmation.
#[derive(Debug)]
pub enum Confirmation<S> {
    /// The daemon may go on with its machine.
    Proceed(Host<S>),
    /// The daemon must return: the machine reboots, or a shutdown was requested.
    Exit(DaemonExit),
}

/// The pending decision that the ledger records.
pub(super) enum PendingUpdate {
    None,
    /// The machine has to reboot into this config, its previous one.
    Reboot(String),
    /// The machine has to prove healthy.
    Confirm(Box<Unconfirmed>),
}

/// An update that has to be confirmed.
pub(super) struct Unconfirmed {
    pub(super) update: Ledger,
    pub(super) progress: Progress,
    pub(super) policy: ConfirmPolicy,
}

/// Confirms or rolls back a pending update; returns at once if there is none.
pub async fn confirm_or_roll_back<S: System + 'static, P: Probe>(
    mut host: Host<S>,
    probe: &P,
    shutdown: &Shutdown,
) -> Confirmation<S> {
    let since = Instant::now();
    let mut before = None;
    loop {
        let pending;
        (host, pending) = on_host(host, read_pending).await;
        let unconfirmed = match pending {
            Ok(PendingUpdate::None) => {
                let removed;
                (host, removed) = on_host(host, standby::remove).await;
                if let Err(fault) = removed {
                    warn!(
                        unit = standby::UNIT,
                        error = chain(&fault),
                        "Failed to remove the standby unit"
                    );
                }
                return Confirmation::Proceed(host);
            }
            Ok(PendingUpdate::Reboot(config)) => {
                let done;
                (host, done) = on_host(host, move |host| execute::reboot(host, &config)).await;
                match done {
                    Ok(()) => return Confirmation::Exit(DaemonExit::Rebooting),
                    Err(fault) => error!("{}", chain(&fault)),
                }
                if sleep_or_shutdown(CHECK_INTERVAL, shutdown).await {
                    return Confirmation::Exit(DaemonExit::Stopped);
                }
                continue;
            }
            Ok(PendingUpdate::Confirm(unconfirmed)) => *unconfirmed,
            Err(fault) => {
                // The daemon itself fails on the same error and reports it.
                warn!(error = chain(&fault), "Failed to read the pending update");
                return Confirmation::Proceed(host);
            }
        };
        let spent = Duration::from_secs(unconfirmed.progress.waited);
        let before = *before.get_or_insert(spent + START_COST);
        let waited = before + since.elapsed();
        let policy = unconfirmed.policy;
        let cluster = probe.check_api_server().await;
        let (kubelet, checks);
        (host, (kubelet, checks)) = on_host(host, move |host| policy.check(host)).await;
        let health = Health { cluster, kubelet, checks };
        let decision = decide(&health, waited, policy.deadline());
        let wait = match &decision {
            HealthDecision::Wait(wait) => Some(*wait),
            HealthDecision::Keep | HealthDecision::RollBack(_) => None,
        };
        let acted;
        (host, acted) =
            on_host(host, move |host| apply_decision(host, &unconfirmed, &decision, waited)).await;
        if let Err(fault) = acted {
            error!(error = chain(&fault), "Failed to roll back the config");
        }
        if sleep_or_shutdown(wait.unwrap_or_default(), shutdown).await {
            return Confirmation::Exit(DaemonExit::Stopped);
        }
    }
}

/// Reads the pending decision. The caller must hold the machine's lock.
pub(super) fn read_pending<S: System>(host: &mut Host<S>) -> Result<PendingUpdate, ExecuteError> {
    let Some((update, progress)) = ledger::open(&host.root)? else {
        return Ok(PendingUpdate::None);
    };
    let before = update.from.metadata.name.clone().unwrap_or_default();
    let booted = host.system.facts()?.boot_id;
    match (ledger::resume(&progress, &update.boot_id, &booted), progress.stage) {
        (Resume::Undo, _) if progress.back_in.is_some() => {
            match execute::roll_back_failed(host, &update, &progress) {
                Ok(_) => Ok(PendingUpdate::Reboot(before)),
                Err(ExecuteError::Undone(why)) => {
                    warn!(config = before, reason = why, "Rolled back to the previous config");
                    Ok(PendingUpdate::None)
                }
                Err(error) => Err(error),
            }
        }
        (Resume::Reboot, Stage::Returning) => Ok(PendingUpdate::Reboot(before)),
        (Resume::Verify, _) if !progress.confirmed => {
            let Some(policy) = policy(&host.root)? else { return Ok(PendingUpdate::None) };
            Ok(PendingUpdate::Confirm(Box::new(Unconfirmed { update, progress, policy })))
        }
        (Resume::Verify | Resume::Reboot | Resume::Undo | Resume::Continue(_), _) => {
            Ok(PendingUpdate::None)
        }
    }
}

fn apply_decision<S: System>(
    host: &mut Host<S>,
    unconfirmed: &Unconfirmed,
    decision: &HealthDecision,
    waited: Duration,
) -> Result<(), ExecuteError> {
    let name = unconfirmed.update.to.metadata.name.as_deref().unwrap_or_default();
    match decision {
        HealthDecision::Keep => {
            info!(config = name, "Confirmed config: the machine is healthy after its reboot");
            let progress = Progress { confirmed: true, ..unconfirmed.progress.clone() };
            ledger::advance(&host.root, &progress)?;
        }
        HealthDecision::Wait(_) => {
            let waited = waited.as_secs();
            // Not at every check, because the ledger would only grow.
            if waited >= unconfirmed.progress.waited + START_COST.as_secs() {
                let left = unconfirmed.policy.deadline().as_secs().saturating_sub(waited);
                warn!(
                    config = name,
                    seconds_left = left,
                    "Machine is unhealthy; config will be rolled back"
                );
                ledger::advance(&host.root, &Progress { waited, ..unconfirmed.progress.clone() })?;
            }
        }
        HealthDecision::RollBack(why) => {
            error!(config = name, reason = why, "Rolling back config");
            execute::roll_back_booted(host, &unconfirmed.update, why)?;
        }
    }
    Ok(())
}

/// Runs blocking work on the machine.
pub(super) async fn on_host<S: System + 'static, T: Send + 'static>(
    mut host: Host<S>,
    work: impl FnOnce(&mut Host<S>) -> T + Send + 'static,
) -> (Host<S>, T) {
    let span = tracing::Span::current();
    let work = move || {
        let done = span.in_scope(|| work(&mut host));
        (host, done)
    };
    tokio::task::spawn_blocking(work).await.expect("the work does not panic")
}

/// Sleeps; returns true if a shutdown is requested meanwhile.
pub(super) async fn sleep_or_shutdown(time: Duration, shutdown: &Shutdown) -> bool {
    tokio::select! {
        () = shutdown.requested() => true,
        () = tokio::time::sleep(time) => false,
    }
}
