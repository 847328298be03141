//! Confirms or rolls back the config that the machine has rebooted into, before the daemon joins
//! the cluster.
//!
//! Must not depend on the cluster: joining it may be the very thing that the new config broke.

use std::{future::Future, time::Duration};

use mco_apply::{
    confirm::{
        self, CHECK_INTERVAL,
        standby::{self, StandbyStatus},
    },
    execute::{self, ExecuteError},
    observe,
};
use mco_cluster::{Shutdown, report::chain};
use mco_core::lifecycle::{
    self, Action, CheckResult, Limits, Observation, Outcome, Severity, State, Wait, Wake,
};
use mco_host::{Host, System};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::DaemonExit;

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
    /// The config could neither be kept nor rolled back; the daemon retries and reports it.
    Failed(Host<S>, Option<ExecuteError>),
    /// The daemon must return: the machine reboots, or a shutdown was requested.
    Exit(DaemonExit),
}

/// Confirms or rolls back a pending update; returns at once if there is none.
///
/// Returns as soon as the machine was told to reboot, unless `reboot` limits the time in which it
/// has to go down.
pub async fn confirm_or_roll_back<S: System + 'static, P: Probe>(
    mut host: Host<S>,
    probe: &P,
    reboot: Option<Duration>,
    shutdown: &Shutdown,
) -> Confirmation<S> {
    let since = Instant::now();
    let limits = Limits { reboot: reboot.unwrap_or_default(), ..Limits::default() };
    let (mut state, mut outcome) = (State::default(), Outcome::Started);
    let mut fault = None;
    loop {
        let disk;
        (host, disk) = on_host(host, observe::disk_view).await;
        let disk = match disk {
            Ok(disk) => disk,
            Err(fault) => {
                // The daemon itself fails on the same error and reports it.
                warn!(error = chain(&fault), "Failed to read the pending update");
                return Confirmation::Proceed(host);
            }
        };
        let seen = Observation { disk, outcome, ..Observation::default() };
        let decision = lifecycle::next(state, &seen, &limits, since.elapsed());
        state = decision.state;
        let done;
        let action = decision.action;
        (host, done) = if action == Action::Connect {
            return Confirmation::Proceed(remove_standby(host).await);
        } else if let Action::Fail(_) = action {
            return Confirmation::Failed(host, fault);
        } else if action == Action::CheckHealth {
            check_health(host, probe).await
        } else if let Action::Reboot(config) = action {
            let (host, done) = start_reboot(host, config).await;
            if done.is_ok() && reboot.is_none() {
                return Confirmation::Exit(DaemonExit::Rebooting);
            }
            (host, done)
        } else {
            let work = move |host: &mut Host<S>| confirm::carry_out(host, &action);
            let (host, done) = on_host(host, work).await;
            (host, done.map(|()| Outcome::Done))
        };
        outcome = done.unwrap_or_else(|error| {
            error!(error = chain(&error), "Failed to confirm or roll back the config");
            fault = Some(error);
            Outcome::Failed(Severity::Degraded)
        });
        if let Wait::Until(until) = decision.wait {
            let left = (since + until).saturating_duration_since(Instant::now());
            if sleep_or_shutdown(left, shutdown).await {
                return Confirmation::Exit(DaemonExit::Stopped);
            }
            outcome = Outcome::Woken(Wake::Deadline);
        }
    }
}

async fn check_health<S: System + 'static, P: Probe>(
    host: Host<S>,
    probe: &P,
) -> (Host<S>, Result<Outcome, ExecuteError>) {
    let cluster = probe.check_api_server().await;
    let work = move |host: &mut Host<S>| -> Result<_, ExecuteError> {
        Ok(Outcome::Health(confirm::check(host)?.with_cluster(cluster)))
    };
    on_host(host, work).await
}

async fn start_reboot<S: System + 'static>(
    host: Host<S>,
    config: String,
) -> (Host<S>, Result<Outcome, ExecuteError>) {
    let work = move |host: &mut Host<S>| {
        execute::reboot(host, &config).map(|()| Outcome::RebootStarted(config))
    };
    on_host(host, work).await
}

async fn remove_standby<S: System + 'static>(host: Host<S>) -> Host<S> {
    let (host, removed) = on_host(host, standby::remove).await;
    if let Err(fault) = removed {
        warn!(unit = standby::UNIT, error = chain(&fault), "Failed to remove the standby unit");
    }
    host
}

/// Waits until the daemon has decided about the config; rolls it back if no daemon decides in time.
///
/// A machine that is healthy without a daemon is left alone. The wait for its daemon fails after a
/// while, so that systemd starts the standby anew.
pub async fn stand_by<S: System + 'static>(
    mut host: Host<S>,
    shutdown: &Shutdown,
) -> Confirmation<S> {
    let since = Instant::now();
    let policy = confirm::policy(&host.root).ok().flatten();
    let deadline = policy.map_or(confirm::DEADLINE, |policy| policy.deadline());
    let end = since + deadline + Limits::default().standby;
    while Instant::now() < end {
        let waited = since.elapsed();
        let status;
        (host, status) = on_host(host, move |host| standby::check(host, waited)).await;
        let left = match status {
            Ok(StandbyStatus::Decided) => return Confirmation::Proceed(host),
            Ok(StandbyStatus::Rebooting) => return Confirmation::Exit(DaemonExit::Rebooting),
            Ok(StandbyStatus::Waiting(left)) => left.min(CHECK_INTERVAL),
            Err(fault) => {
                error!(error = chain(&fault), "Failed to check the pending update");
                CHECK_INTERVAL
            }
        };
        if sleep_or_shutdown(left, shutdown).await {
            return Confirmation::Exit(DaemonExit::Stopped);
        }
    }
    warn!(unit = standby::UNIT, "No daemon has decided about the config");
    Confirmation::Failed(host, None)
}

/// Runs blocking work on the machine.
async fn on_host<S: System + 'static, T: Send + 'static>(
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
async fn sleep_or_shutdown(time: Duration, shutdown: &Shutdown) -> bool {
    tokio::select! {
        () = shutdown.requested() => true,
        () = tokio::time::sleep(time) => false,
    }
}
