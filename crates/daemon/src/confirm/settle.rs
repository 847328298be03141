//! What a daemon does before anything else: sees whether the config that the machine has just rebooted
//! into is kept, and takes it back if not.
//!
//! Comes before the daemon joins the cluster, which may be the very thing that the machine cannot do.

use std::{future::Future, time::Duration};

use mco_cluster::{Shutdown, report::chain};
use mco_host::{Answer, Host, System};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::{Health, PAUSE, Policy, Verdict, decide, policy, standby};
use crate::{
    Ended,
    execute::{self, ExecuteError},
    ledger::{self, Ledger, Progress, Resume, Stage},
};

/// A daemon that cannot stay up must run out of time, too, so that each start costs some.
const START_COST: Duration = Duration::from_secs(10);

/// Asks the cluster whether it is there.
pub trait Probe: Send + Sync {
    /// Whether the cluster can be reached.
    fn cluster(&self) -> impl Future<Output = Answer> + Send;
}

/// What came of it.
#[derive(Debug)]
pub enum Settled<S> {
    /// The daemon may go on with its machine.
    Go(Host<S>),
    /// It must not: the machine reboots, or it was told to stop.
    Ended(Ended),
}

/// What the ledger says is to be settled.
pub(super) enum Open {
    Nothing,
    /// The machine is to reboot into this config, which it had before.
    Reboot(String),
    /// The machine is to prove healthy.
    Prove(Box<Proof>),
}

/// What a machine has to prove healthy with, and how.
pub(super) struct Proof {
    pub(super) update: Ledger,
    pub(super) progress: Progress,
    pub(super) policy: Policy,
}

/// Settles what is open; returns at once where nothing is.
pub async fn settle<S: System + 'static, P: Probe>(
    mut host: Host<S>,
    probe: &P,
    shutdown: &Shutdown,
) -> Settled<S> {
    let since = Instant::now();
    let mut before = None;
    loop {
        let open;
        (host, open) = on_host(host, look).await;
        let proof = match open {
            Ok(Open::Nothing) => {
                let removed;
                (host, removed) = on_host(host, standby::remove).await;
                if let Err(fault) = removed {
                    warn!(error = chain(&fault), "Cannot remove {}", standby::UNIT);
                }
                return Settled::Go(host);
            }
            Ok(Open::Reboot(config)) => {
                let done;
                (host, done) = on_host(host, move |host| execute::reboot(host, &config)).await;
                match done {
                    Ok(()) => return Settled::Ended(Ended::Rebooting),
                    Err(fault) => error!("{}", chain(&fault)),
                }
                if pause(PAUSE, shutdown).await {
                    return Settled::Ended(Ended::Stopped);
                }
                continue;
            }
            Ok(Open::Prove(proof)) => *proof,
            Err(fault) => {
                // The daemon itself will meet it again, and can tell somebody.
                warn!(error = chain(&fault), "Cannot tell whether the config is to be confirmed");
                return Settled::Go(host);
            }
        };
        let spent = Duration::from_secs(proof.progress.waited);
        let before = *before.get_or_insert(spent + START_COST);
        let waited = before + since.elapsed();
        let policy = proof.policy;
        let cluster = probe.cluster().await;
        let (kubelet, checks);
        (host, (kubelet, checks)) = on_host(host, move |host| policy.ask(host)).await;
        let health = Health { cluster, kubelet, checks };
        let verdict = decide(&health, waited, policy.deadline());
        let wait = match &verdict {
            Verdict::Wait(wait) => Some(*wait),
            Verdict::Keep | Verdict::TakeBack(_) => None,
        };
        let acted;
        (host, acted) = on_host(host, move |host| act(host, &proof, &verdict, waited)).await;
        if let Err(fault) = acted {
            error!("Cannot take the config back: {}", chain(&fault));
        }
        if pause(wait.unwrap_or_default(), shutdown).await {
            return Settled::Ended(Ended::Stopped);
        }
    }
}

/// Looks at what is to be settled. Only for who holds the machine's lock.
pub(super) fn look<S: System>(host: &mut Host<S>) -> Result<Open, ExecuteError> {
    let Some((update, progress)) = ledger::open(&host.root)? else { return Ok(Open::Nothing) };
    let before = update.from.metadata.name.clone().unwrap_or_default();
    let booted = host.system.facts()?.boot_id;
    match (ledger::resume(&progress, &update.boot_id, &booted), progress.stage) {
        (Resume::Undo, _) if progress.back_in.is_some() => {
            match execute::undo(host, &update, &progress) {
                Ok(_) => Ok(Open::Reboot(before)),
                Err(ExecuteError::Undone(why)) => {
                    warn!("The config before is back, because of the one after it: {why}");
                    Ok(Open::Nothing)
                }
                Err(error) => Err(error),
            }
        }
        (Resume::Reboot, Stage::Returning) => Ok(Open::Reboot(before)),
        (Resume::Verify, _) if !progress.confirmed => {
            let Some(policy) = policy(&host.root)? else { return Ok(Open::Nothing) };
            Ok(Open::Prove(Box::new(Proof { update, progress, policy })))
        }
        (Resume::Verify | Resume::Reboot | Resume::Undo | Resume::Continue(_), _) => {
            Ok(Open::Nothing)
        }
    }
}

fn act<S: System>(
    host: &mut Host<S>,
    proof: &Proof,
    verdict: &Verdict,
    waited: Duration,
) -> Result<(), ExecuteError> {
    let name = proof.update.to.metadata.name.as_deref().unwrap_or_default();
    match verdict {
        Verdict::Keep => {
            info!("Confirmed config {name}: the machine is healthy after its reboot");
            let progress = Progress { confirmed: true, ..proof.progress.clone() };
            ledger::advance(&host.root, &progress)?;
        }
        Verdict::Wait(_) => {
            let waited = waited.as_secs();
            // Not at every look: the record would only grow.
            if waited >= proof.progress.waited + START_COST.as_secs() {
                let left = proof.policy.deadline().as_secs().saturating_sub(waited);
                warn!("Config {name} is taken back in {left} s unless the machine gets healthy");
                ledger::advance(&host.root, &Progress { waited, ..proof.progress.clone() })?;
            }
        }
        Verdict::TakeBack(why) => {
            error!("Taking back config {name}: {why}");
            execute::take_back(host, &proof.update, why)?;
        }
    }
    Ok(())
}

/// Runs something on the machine, on a thread that may block.
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

/// Waits; says whether it was told to stop.
pub(super) async fn pause(time: Duration, shutdown: &Shutdown) -> bool {
    tokio::select! {
        () = shutdown.requested() => true,
        () = tokio::time::sleep(time) => false,
    }
}
