//! The daemon's loop: observe the node and the disk, decide, act, report.
//!
//! Nothing polls. The loop sleeps until the node's annotations change, the disk drifts, a deadline
//! passes or a failed try is due again. What touches the machine runs on a thread of its own and is
//! never cancelled in the middle: a request to stop waits for it.

mod adopt;
pub(crate) mod confirm;
mod drain;
mod fail;
mod protect;
mod say;
mod settle;
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

pub use self::fail::{Found, SyncError};
use crate::{
    Limits, Surroundings,
    cluster::{Changes, Cluster, NodeState, Weight},
    confirm::standby::Program,
    decide::{self, NodeView, Task},
    disk,
    heal::History,
    metrics::Metrics,
    shared::SharedHost,
    state::Glass,
    watch::Watch,
};

/// How a daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// The machine reboots.
    Rebooting,
}

/// What to do after a sync.
enum Next {
    /// Look again at once.
    Again,
    /// Wait for something to happen, at most so long.
    Wait(Option<Instant>),
    /// The machine reboots; there is nothing left to do.
    Rebooting,
}

/// A failed try is repeated after one second, then two, and so on up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The daemon of one node.
#[derive(Debug)]
pub struct Agent<S, C> {
    node: NodeName,
    host: SharedHost<S>,
    cluster: C,
    /// The node as the watch last saw it.
    seen: watch::Receiver<NodeState>,
    /// The node as we last knew it, our own writes included.
    known: NodeState,
    /// What is wrong with the certificates.
    troubles: watch::Receiver<Option<String>>,
    /// Watches the disk while it should be at rest.
    guard: Option<Watch>,
    /// The config that the disk was found to equal, until something happens to the disk.
    verified: Option<RenderedName>,
    /// What we wait for the drain controller to do, and since when.
    waiting: Option<(DrainRequest, Instant)>,
    /// Since when the kubelet is missed after an update.
    missed: Option<Instant>,
    failures: u32,
    /// When this daemon started.
    since: Instant,
    /// What was put right of late.
    healed: History,
    /// Whether the machine was made ready by this daemon.
    is_prepared: bool,
    /// What went wrong when the last boot ended.
    root_cause: Option<String>,
    /// Whether everything was well since this daemon started.
    has_settled: bool,
    /// Whether the machine is being changed, so that a request to stop must wait.
    protected: bool,
    shutdown: Shutdown,
    metrics: Metrics,
    glass: Glass,
    limits: Limits,
    clock: Clock,
    /// What takes a config back where no daemon comes up after its reboot.
    standby: Option<Program>,
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// A daemon for `node`, whose annotations arrive through `seen`, and what is wrong with its
    /// certificates through `troubles`.
    pub fn new(
        node: NodeName,
        host: SharedHost<S>,
        cluster: C,
        seen: watch::Receiver<NodeState>,
        troubles: watch::Receiver<Option<String>>,
        around: &Surroundings,
    ) -> Self {
        let known = seen.borrow().clone();
        around.glass.note(|state| state.node = node.to_string());
        Self {
            node,
            host,
            cluster,
            known,
            seen,
            troubles,
            guard: None,
            verified: None,
            waiting: None,
            missed: None,
            failures: 0,
            since: Instant::now(),
            healed: History::default(),
            is_prepared: false,
            root_cause: None,
            has_settled: false,
            protected: false,
            shutdown: Shutdown::new(),
            metrics: around.metrics.clone(),
            glass: around.glass.clone(),
            limits: around.limits,
            clock: around.clock,
            standby: around.standby.clone(),
        }
    }

    /// Runs until told to stop or until the machine reboots.
    pub async fn run(mut self, shutdown: Shutdown) -> Ended {
        self.shutdown = shutdown;
        info!("Starting to manage node: {}", self.node);
        while self.protected || !self.shutdown.is_requested() {
            let pause = match self.sync().await {
                Ok(Next::Again) => continue,
                Ok(Next::Rebooting) => return Ended::Rebooting,
                Ok(Next::Wait(until)) => {
                    self.failures = 0;
                    until
                }
                Err(error) => {
                    self.unprotect().await;
                    self.fail(&error).await;
                    let pause = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST_PAUSE);
                    self.failures = self.failures.saturating_add(1);
                    Some(Instant::now() + pause)
                }
            };
            if !self.rest(pause).await {
                break;
            }
        }
        Ended::Stopped
    }

    /// Waits for something to do; says whether there may be something.
    async fn rest(&mut self, pause: Option<Instant>) -> bool {
        let shutdown = self.shutdown.clone();
        // Who was asked to stop in the middle of a change waits a little for its last answer.
        let must_wait = self.protected && shutdown.is_requested();
        let farewell = if must_wait { self.limits.farewell } else { Duration::ZERO };
        let stop = async {
            shutdown.requested().await;
            tokio::time::sleep(farewell).await;
        };
        tokio::select! {
            () = stop => return false,
            () = self.something_happens() => {}
            () = until(pause) => self.verified = None,
        }
        true
    }

    async fn sync(&mut self) -> Result<Next, SyncError> {
        let node = NodeView::read(&self.known.annotations)?;
        let disk = self.on_host(look).await??;
        self.show(&node, &disk);
        let task = decide::next(&node, &disk);
        // What was begun is finished first, whatever else is wrong with the machine.
        if !matches!(task, Task::Resume(_)) {
            self.prepare().await?;
        }
        match task {
            Task::Resume(resume) => self.resume(resume).await,
            Task::NoteReboot => self.note_reboot().await,
            Task::Introduce(annotations) => {
                let pairs = annotations.into_iter().map(|(key, value)| (key, Some(value)));
                self.annotate(pairs.collect()).await?;
                Ok(Next::Again)
            }
            Task::Adopt => self.adopt().await,
            Task::Settle(config) => self.settle(&node, &config).await,
            Task::Update { from, to } => self.update(&node, &from, &to, disk.force).await,
            Task::Lost(missing) => Err(missing.into()),
        }
    }

    /// Waits until the node's annotations change or something happens to a watched path.
    async fn something_happens(&mut self) {
        tokio::select! {
            known = newer(&mut self.seen, &self.known) => self.known = known,
            () = changed(&mut self.troubles) => {}
            drift = disturbed(&mut self.guard) => {
                if let Err(error) = drift {
                    warn!(error = chain(&error), "fsnotify error");
                    self.guard = None;
                }
                self.verified = None;
            }
        }
    }

    /// Runs something on the machine, on a thread that may block.
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
            self.known.annotations.get(key) == value.as_ref()
        };
        if changes.iter().all(|(key, value)| has(key, value)) {
            return Ok(());
        }
        self.known = self.cluster.annotate(&changes).await?;
        Ok(())
    }

    /// Watches the disk against a config from now on.
    async fn guard(&mut self, machine: &Machine) -> Result<(), SyncError> {
        let expected = drift::expected(machine);
        let made = self
            .on_host(move |host| {
                let paths = expected.iter().map(|item| item.path.as_str());
                let paths = paths.filter(|path| path.starts_with('/'));
                // Whoever asks for everything again is heard at once, too.
                Watch::new(&host.root, paths.chain([crate::execute::FORCE_FILE]))
            })
            .await?;
        let is_new = self.guard.is_none();
        self.guard = Some(made?);
        if is_new {
            info!("Config Drift Monitor started");
            let text = format!("Config Drift Monitor started, watching against {}", machine.name);
            self.cluster.tell(Weight::Normal, "ConfigDriftMonitorStarted", &text).await;
        }
        Ok(())
    }

    /// Lets the disk change without being noticed: it is ourselves who change it.
    async fn unguard(&mut self) {
        if self.guard.take().is_some() {
            info!("Config Drift Monitor has shut down");
            let text = "Config Drift Monitor stopped";
            self.cluster.tell(Weight::Normal, "ConfigDriftMonitorStopped", text).await;
        }
        self.verified = None;
    }
}

fn look<S: System>(host: &mut Host<S>) -> Result<decide::DiskView, SyncError> {
    let current = disk::current_config(&host.root)?;
    let name = current.and_then(|config| config.metadata.name);
    let update = crate::ledger::open(&host.root)?;
    Ok(decide::DiskView {
        // A record without a usable name is as good as none.
        current: name.and_then(|name| name.parse().ok()),
        introduction: disk::initial_annotations(&host.root)?,
        update: update.map(|(ledger, progress)| (progress, ledger.boot_id)),
        boot_id: host.system.facts()?.boot_id,
        force: host.root.exists(crate::execute::FORCE_FILE)?,
    })
}

/// The node once it is newer than what we know and says something else.
async fn newer(seen: &mut watch::Receiver<NodeState>, known: &NodeState) -> NodeState {
    loop {
        {
            let state = seen.borrow_and_update();
            if state.version >= known.version && state.annotations != known.annotations {
                return state.clone();
            }
        }
        if seen.changed().await.is_err() {
            // Nobody watches any longer; whoever runs us will say so.
            std::future::pending::<()>().await;
        }
    }
}

async fn changed<T>(seen: &mut watch::Receiver<T>) {
    if seen.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn disturbed(guard: &mut Option<Watch>) -> Result<(), crate::watch::WatchError> {
    match guard {
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
