//! The daemon's reconcile loop: observe the node and the disk, decide, act, report.
//!
//! The loop does not poll. It sleeps until the node's annotations change, the disk drifts, a
//! deadline passes or a retry is due. Work on the machine runs on its own thread and is never
//! cancelled: a shutdown waits for its end.

mod adopt;
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
use mco_api::{NodeName, RenderedName, annotation::DrainRequest};
use mco_cluster::{Clock, Shutdown, report::chain};
use mco_core::{drift, machine::Machine};
use mco_host::{Host, System};
use tokio::{sync::watch, task::JoinError, time::Instant};
use tracing::{info, warn};

pub use self::error::{DriftDetected, SyncError};
use crate::{
    DaemonContext, Limits,
    cluster::{Changes, Cluster, EventType, NodeState},
    confirm::standby::Program,
    decide::{self, NodeAnnotations, Task},
    disk,
    heal::RepairHistory,
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

/// The next action of the loop after a sync.
enum AfterSync {
    /// Sync again at once.
    SyncAgain,
    /// Wait for a change, or until the deadline.
    Wait(Option<Instant>),
    /// The machine reboots; the loop ends.
    Rebooting,
}

/// Longest pause between retries; the first is one second, each further one twice as long.
const MAX_BACKOFF: Duration = Duration::from_mins(1);

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
    /// The config that the disk was verified against; none after a change on the disk.
    verified: Option<RenderedName>,
    /// The pending request to the drain controller, and its start.
    drain_wait: Option<(DrainRequest, Instant)>,
    /// Since when the kubelet is unhealthy after an update.
    kubelet_down_since: Option<Instant>,
    failures: u32,
    /// Start of this daemon.
    since: Instant,
    /// Recent drift repairs.
    repairs: RepairHistory,
    /// True once this daemon has prepared the machine.
    is_prepared: bool,
    /// The error of the last deployment's finalization, if it failed.
    root_cause: Option<String>,
    /// True once this daemon has reported the node as Done.
    has_completed: bool,
    /// True while the machine is being changed, so that a shutdown must wait.
    protected: bool,
    shutdown: Shutdown,
    metrics: Metrics,
    glass: SharedState,
    limits: Limits,
    clock: Clock,
    /// The program that rolls the config back if no daemon starts after the reboot.
    standby: Option<Program>,
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
            verified: None,
            drain_wait: None,
            kubelet_down_since: None,
            failures: 0,
            since: Instant::now(),
            repairs: RepairHistory::default(),
            is_prepared: false,
            root_cause: None,
            has_completed: false,
            protected: false,
            shutdown: Shutdown::new(),
            metrics: around.metrics.clone(),
            glass: around.state.clone(),
            limits: around.limits,
            clock: around.clock,
            standby: around.standby.clone(),
        }
    }

    /// Runs until a shutdown is requested or the machine reboots.
    pub async fn run(mut self, shutdown: Shutdown) -> DaemonExit {
        self.shutdown = shutdown;
        info!("Starting to manage node: {}", self.node);
        while self.protected || !self.shutdown.is_requested() {
            let pause = match self.sync().await {
                Ok(AfterSync::SyncAgain) => continue,
                Ok(AfterSync::Rebooting) => return DaemonExit::Rebooting,
                Ok(AfterSync::Wait(until)) => {
                    self.failures = 0;
                    until
                }
                Err(error) => {
                    self.unprotect().await;
                    self.fail(&error).await;
                    let pause = Duration::from_secs(1 << self.failures.min(6)).min(MAX_BACKOFF);
                    self.failures = self.failures.saturating_add(1);
                    Some(Instant::now() + pause)
                }
            };
            if !self.wait(pause).await {
                break;
            }
        }
        DaemonExit::Stopped
    }

    /// Waits for a change; returns false once the daemon must stop.
    async fn wait(&mut self, pause: Option<Instant>) -> bool {
        let shutdown = self.shutdown.clone();
        // A shutdown in the middle of a change waits a little for the last API calls.
        let must_wait = self.protected && shutdown.is_requested();
        let shutdown_grace = if must_wait { self.limits.shutdown_grace } else { Duration::ZERO };
        let stop = async {
            shutdown.requested().await;
            tokio::time::sleep(shutdown_grace).await;
        };
        tokio::select! {
            () = stop => return false,
            () = self.wait_for_change() => {}
            () = until(pause) => self.verified = None,
        }
        true
    }

    async fn sync(&mut self) -> Result<AfterSync, SyncError> {
        let node = NodeAnnotations::read(&self.node_state.annotations)?;
        let disk = self.on_host(read_disk).await??;
        self.publish_state(&node, &disk);
        let task = decide::next(&node, &disk);
        // An unfinished update is completed first, whatever else is wrong with the machine.
        if !matches!(task, Task::Resume(_)) {
            self.prepare().await?;
        }
        match task {
            Task::Resume(resume) => self.resume(resume).await,
            Task::ClearRebooting => self.clear_rebooting().await,
            Task::SetInitialAnnotations(annotations) => {
                let pairs = annotations.into_iter().map(|(key, value)| (key, Some(value)));
                self.annotate(pairs.collect()).await?;
                Ok(AfterSync::SyncAgain)
            }
            Task::Adopt => self.adopt().await,
            Task::Complete(config) => self.complete(&node, &config).await,
            Task::Update { from, to } => self.update(&node, &from, &to, disk.force).await,
            Task::Blocked(missing) => Err(missing.into()),
        }
    }

    /// Waits until the node's annotations, the certificate error or a watched path change.
    async fn wait_for_change(&mut self) {
        tokio::select! {
            known = newer_node(&mut self.observed, &self.node_state) => self.node_state = known,
            () = changed(&mut self.certificate_errors) => {}
            drift = drift_event(&mut self.drift_watch) => {
                if let Err(error) = drift {
                    warn!(error = chain(&error), "fsnotify error");
                    self.drift_watch = None;
                }
                self.verified = None;
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
                Watch::new(&host.root, paths.chain([crate::execute::FORCE_FILE]))
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
        self.verified = None;
    }
}

fn read_disk<S: System>(host: &mut Host<S>) -> Result<decide::DiskView, SyncError> {
    let current = disk::current_config(&host.root)?;
    let name = current.and_then(|config| config.metadata.name);
    let update = crate::ledger::open(&host.root)?;
    Ok(decide::DiskView {
        // A recorded config without a usable name is treated as not recorded.
        current: name.and_then(|name| name.parse().ok()),
        initial_annotations: disk::initial_annotations(&host.root)?,
        update: update.map(|(ledger, progress)| (progress, ledger.boot_id)),
        boot_id: host.system.facts()?.boot_id,
        force: host.root.exists(crate::execute::FORCE_FILE)?,
    })
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

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
