//! The daemon's reconcile loop: observe the node and the disk, decide (`mco_core::lifecycle`), act,
//! report.
//!
//! The loop does not poll. It sleeps until the node's annotations change, the disk drifts, a
//! deadline passes or a retry is due. Work on the machine runs on its own thread and is never
//! cancelled: a shutdown waits for its end.

mod adopt;
mod carry_out;
mod complete;
pub(crate) mod confirm;
mod drain;
mod error;
mod protect;
mod report;
mod start;
mod update;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::NodeName;
use mco_apply::{ParsedConfig, confirm::standby::Program, execute, observe};
use mco_cluster::{Clock, Shutdown, report::chain};
use mco_core::{
    drift,
    lifecycle::{
        self, Action, Decision, DiskView, NodeAnnotations, Observation, Outcome, Phase, State,
        Wait, Wake,
    },
    machine::Machine,
};
use mco_host::{Host, System};
use tokio::{sync::watch, task::JoinError, time::Instant};
use tracing::{info, warn};

pub use self::error::SyncError;
use self::update::Preparation;
use crate::{
    DaemonContext, Limits,
    cluster::{Changes, Cluster, EventType, NodeState},
    metrics::Metrics,
    shared::SharedHost,
    state::SharedState,
    watch::Watch,
};

/// The reason why a daemon returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonExit {
    /// A shutdown was requested.
    Stopped,
    /// The machine reboots.
    Rebooting,
}

/// The reconcile loop of one node.
#[derive(Debug)]
pub struct Agent<S, C> {
    node: NodeName,
    host: SharedHost<S>,
    cluster: C,
    /// The node as last observed by the watch.
    observed: watch::Receiver<NodeState>,
    /// The node with the daemon's own writes, which the watch may not have delivered yet.
    node_state: NodeState,
    /// The current error of the certificate sync.
    certificate_errors: watch::Receiver<Option<String>>,
    /// Watches the disk for drift while no update runs.
    drift_watch: Option<Watch>,
    /// State of the node's life.
    state: State,
    /// Start of this daemon.
    since: Instant,
    /// Outcome of the last action.
    outcome: Outcome,
    /// Records on the disk, as last read.
    disk: DiskView,
    /// Error of the last action, if it failed.
    fault: Option<SyncError>,
    /// Phase before the last decision.
    phase_before: Phase,
    /// Config of the node, while it is needed.
    current: Option<ParsedConfig>,
    /// Update that is being prepared.
    preparation: Option<Preparation>,
    /// The error of the last deployment's finalization, if it failed.
    root_cause: Option<String>,
    /// True while the machine is being changed, so that a shutdown must wait.
    protected: bool,
    shutdown: Shutdown,
    metrics: Metrics,
    glass: SharedState,
    limits: Limits,
    clock: Clock,
    /// The program that rolls the config back if no daemon starts after the reboot.
    standby: Option<Program>,
    /// True while the machine is managed.
    managed: watch::Sender<bool>,
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Builds the loop for `node`. The node's annotations arrive through `observed`, errors of the
    /// certificate sync through `certificate_errors`.
    pub fn new(
        node: NodeName,
        host: SharedHost<S>,
        cluster: C,
        observed: watch::Receiver<NodeState>,
        certificate_errors: watch::Receiver<Option<String>>,
        around: &DaemonContext,
    ) -> Self {
        let node_state = observed.borrow().clone();
        around.state.update(|state| state.node = node.to_string());
        Self {
            node,
            host,
            cluster,
            node_state,
            observed,
            certificate_errors,
            drift_watch: None,
            state: State::default(),
            since: Instant::now(),
            outcome: Outcome::Started,
            disk: DiskView::default(),
            fault: None,
            phase_before: Phase::Starting,
            current: None,
            preparation: None,
            root_cause: None,
            protected: false,
            shutdown: Shutdown::new(),
            metrics: around.metrics.clone(),
            glass: around.state.clone(),
            limits: around.limits,
            clock: around.clock,
            standby: around.standby.clone(),
            managed: watch::Sender::new(false),
        }
    }

    /// Reports to other tasks while the machine is managed: they may write to it.
    pub(crate) fn reporting_managed(self, managed: watch::Sender<bool>) -> Self {
        Self { managed, ..self }
    }

    /// Runs until a shutdown is requested or the machine reboots.
    pub async fn run(mut self, shutdown: Shutdown) -> DaemonExit {
        self.shutdown = shutdown;
        info!("Starting to manage node: {}", self.node);
        while self.protected || !self.shutdown.is_requested() {
            let decision = self.decide().await;
            let is_reboot = matches!(decision.action, Action::Reboot(_));
            self.outcome = match self.carry_out(decision.action).await {
                Ok(_) if is_reboot && self.limits.reboot.is_none() => return DaemonExit::Rebooting,
                Ok(outcome) => outcome,
                Err(error) => {
                    let severity = error.severity();
                    self.fault = Some(error);
                    Outcome::Failed(severity)
                }
            };
            if let Wait::Until(until) = decision.wait {
                match self.wait(self.since + until).await {
                    Some(wake) => self.outcome = Outcome::Woken(wake),
                    None => break,
                }
            }
        }
        // A machine that goes down stops its daemon.
        if self.state.phase == Phase::Rebooting {
            DaemonExit::Rebooting
        } else {
            DaemonExit::Stopped
        }
    }

    /// Observes, and decides the next action.
    async fn decide(&mut self) -> Decision {
        let seen = match self.observe().await {
            Ok(seen) => seen,
            Err(error) => {
                let outcome = Outcome::Failed(error.severity());
                self.fault = Some(error);
                Observation { outcome, ..Observation::default() }
            }
        };
        let limits = self.limits.lifecycle();
        let before = self.state.phase;
        let state = std::mem::take(&mut self.state);
        let decision = lifecycle::next(state, &seen, &limits, self.since.elapsed());
        self.state = decision.state.clone();
        self.publish_phase(before);
        decision
    }

    async fn observe(&mut self) -> Result<Observation, SyncError> {
        self.managed.send_replace(!self.node_state.is_forgotten());
        let node = NodeAnnotations::read(&self.node_state.annotations)?;
        let outcome = std::mem::take(&mut self.outcome);
        let is_known = matches!(
            outcome,
            Outcome::Prepared
                | Outcome::Verified(..)
                | Outcome::Planned(_)
                | Outcome::Kubelet(_)
                | Outcome::Health(_)
        );
        if !is_known {
            let disk = self.on_host(observe::disk_view).await?;
            self.disk = disk.map_err(SyncError::of_disk)?;
        }
        self.publish_state(&node);
        let certificates = self.certificate_errors.borrow_and_update().clone();
        Ok(Observation { node: Some(node), disk: self.disk.clone(), certificates, outcome })
    }

    /// Waits for a change, at most until `deadline`; returns none once the daemon must stop.
    async fn wait(&mut self, deadline: Instant) -> Option<Wake> {
        let shutdown = self.shutdown.clone();
        // A shutdown in the middle of a change waits a little for the last API calls.
        let must_wait = self.protected && shutdown.is_requested();
        let shutdown_grace = if must_wait { self.limits.shutdown_grace } else { Duration::ZERO };
        let stop = async {
            shutdown.requested().await;
            tokio::time::sleep(shutdown_grace).await;
        };
        tokio::select! {
            () = stop => None,
            wake = self.wait_for_change() => Some(wake),
            () = tokio::time::sleep_until(deadline) => Some(Wake::Deadline),
        }
    }

    /// Waits until the node's annotations, the certificate error or a watched path change.
    async fn wait_for_change(&mut self) -> Wake {
        tokio::select! {
            known = newer_node(&mut self.observed, &self.node_state) => {
                self.node_state = known;
                Wake::Change
            }
            () = changed(&mut self.certificate_errors) => Wake::Change,
            drift = drift_event(&mut self.drift_watch) => {
                if let Err(error) = drift {
                    warn!(error = chain(&error), "fsnotify error");
                    self.drift_watch = None;
                }
                Wake::Disk
            }
        }
    }

    /// Runs blocking work on the machine.
    async fn on_host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host<S>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.host.work(work).await
    }

    fn now(&self) -> Time {
        Time(self.clock.now())
    }

    async fn annotate(&mut self, changes: Changes) -> Result<(), SyncError> {
        let has = |key: &String, value: &Option<String>| {
            self.node_state.annotations.get(key) == value.as_ref()
        };
        if changes.iter().all(|(key, value)| has(key, value)) {
            return Ok(());
        }
        self.node_state = self.cluster.annotate(&changes).await?;
        Ok(())
    }

    /// Starts the drift watch over the paths of a config.
    async fn start_drift_watch(&mut self, machine: &Machine) -> Result<(), SyncError> {
        let expected = drift::expected(machine);
        let made = self
            .on_host(move |host| {
                let paths = expected.iter().map(|item| item.path.as_str());
                let paths = paths.filter(|path| path.starts_with('/'));
                // A new force file triggers a sync at once, too.
                Watch::new(&host.root, paths.chain([execute::FORCE_FILE]))
            })
            .await?;
        let is_new = self.drift_watch.is_none();
        self.drift_watch = Some(made?);
        if is_new {
            info!("Config Drift Monitor started");
            let text = format!("Config Drift Monitor started, watching against {}", machine.name);
            self.cluster.publish_event(EventType::Normal, "ConfigDriftMonitorStarted", &text).await;
        }
        Ok(())
    }

    /// Stops the drift watch, because the daemon itself is about to change the disk.
    async fn stop_drift_watch(&mut self) {
        if self.drift_watch.take().is_some() {
            info!("Config Drift Monitor has shut down");
            let text = "Config Drift Monitor stopped";
            self.cluster.publish_event(EventType::Normal, "ConfigDriftMonitorStopped", text).await;
        }
    }
}

/// Waits until the watch delivers a node that is newer than `known` and has other annotations.
async fn newer_node(observed: &mut watch::Receiver<NodeState>, known: &NodeState) -> NodeState {
    loop {
        {
            let state = observed.borrow_and_update();
            if state.is_at_least(known) && state.annotations != known.annotations {
                return state.clone();
            }
        }
        if observed.changed().await.is_err() {
            // The watch has ended; the caller of the loop stops it.
            std::future::pending::<()>().await;
        }
    }
}

async fn changed<T>(observed: &mut watch::Receiver<T>) {
    if observed.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn drift_event(drift_watch: &mut Option<Watch>) -> Result<(), crate::watch::WatchError> {
    match drift_watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}
