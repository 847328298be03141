//! The node daemon: applies the rendered config of one node and reports the progress.
//!
//! Each turn observes (annotations, disk, ledger), decides (`mco_core::lifecycle`), acts
//! (`mco-apply`: blocking calls, recorded in the ledger) and reports (annotations, conditions,
//! events, metrics). There are no globals, so that one process can run many daemons.

mod access;
pub mod agent;
mod certificates;
pub mod cluster;
pub mod kubelet;
pub mod machine_config_node;
pub mod metrics;
pub mod os_info;
mod permit;
pub mod pinned;
pub mod previous_logs;
pub mod shared;
pub mod simulate;
pub mod startup;
pub mod state;
pub mod watch;

pub use agent::{Agent, DaemonExit};

use std::time::Duration;

use kube::Client;
use mco_api::NodeName;
use mco_apply::{confirm, confirm::standby::Program, disk};
use mco_cluster::{Clock, Health, Reporter, Shutdown, report::chain, watch::Config as WatchConfig};
use mco_core::{lifecycle, render::Build, takeover::Order};
use mco_host::{Host, System};
use tokio::sync::watch as latest;
use tracing::{Instrument as _, warn};

use crate::{
    certificates::CertificateSync,
    cluster::{ApiCluster, NodeState, watch_node},
    kubelet::HealthAddress,
    machine_config_node::StatusSender,
    metrics::Metrics,
    pinned::{PinnedImageSync, RunCommand},
    shared::{SharedHost, while_managed},
    startup::Confirmation,
    state::SharedState,
};

/// First pause after the node could not be read; doubled each time.
const FIRST_CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause after the node could not be read.
const MAX_CONNECT_PAUSE: Duration = Duration::from_secs(30);

/// The API clients of a daemon.
#[derive(Clone)]
pub struct Clients {
    /// Reads everything, and writes the node's MachineConfigNode.
    pub own: Client,
    /// Writes annotations and events of the node. Uses the kubelet's credentials if the machine has
    /// them, because the cluster lets a kubelet change its own node and no other.
    pub node: Client,
}

impl From<Client> for Clients {
    fn from(client: Client) -> Self {
        Self { own: client.clone(), node: client }
    }
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// Timeouts of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the drain controller to drain the node: long enough for pods that are slow to stop,
    /// short enough for an administrator to see the failure.
    pub drain: Duration,
    /// For the drain controller to uncordon the node.
    pub uncordon: Duration,
    /// For a kubelet that was healthy before an update to be healthy after the update.
    pub kubelet: Duration,
    /// For the operator to publish the merged node disruption policies after a change of them.
    pub policies: Duration,
    /// For the last API calls after a shutdown request.
    pub shutdown_grace: Duration,
    /// For the pending MachineConfigNode updates before the machine reboots.
    pub status_flush: Duration,
    /// For the machine to prove healthy after a reboot, if its pool sets no time. Zero disables the
    /// confirmation.
    pub confirm: Duration,
    /// For the machine to go down after it was told to reboot. If none, the daemon returns at once:
    /// a simulated machine goes down when its daemon returns.
    pub reboot: Option<Duration>,
    /// First pause between two attempts to pull a pinned image; each further one is twice as long.
    pub pull_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let lifecycle::Limits { drain, uncordon, kubelet, .. } = lifecycle::Limits::default();
        Self {
            drain,
            uncordon,
            kubelet,
            policies: Duration::from_mins(2),
            shutdown_grace: Duration::from_secs(5),
            status_flush: Duration::from_secs(3),
            confirm: confirm::DEADLINE,
            reboot: None,
            pull_pause: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// Returns the limits that decide about the next action.
    fn lifecycle(&self) -> lifecycle::Limits {
        let Self { drain, uncordon, kubelet, reboot, .. } = *self;
        let reboot = reboot.unwrap_or_default();
        lifecycle::Limits { drain, uncordon, kubelet, reboot, ..lifecycle::Limits::default() }
    }
}

/// The dependencies of a daemon.
#[derive(Clone)]
pub struct DaemonContext {
    /// The API clients.
    pub clients: Clients,
    /// Publishes events.
    pub reporter: Reporter,
    /// The metrics of this daemon.
    pub metrics: Metrics,
    /// The health of this daemon.
    pub health: Health,
    /// The state that the admin address serves.
    pub state: SharedState,
    /// The timeouts.
    pub limits: Limits,
    /// The clock.
    pub clock: Clock,
    /// The health endpoint of the machine's kubelet; not checked if none.
    pub kubelet: Option<HealthAddress>,
    /// Runs commands on the machine; images are not pulled ahead of time if none.
    pub commands: Option<RunCommand>,
    /// The program that rolls the config back if no daemon starts after a reboot; not installed if
    /// none.
    pub standby: Option<Program>,
    /// The build of the daemon, and the order about a cluster of another operator; every cluster is its
    /// own if none.
    pub order: Option<(Build, Order)>,
}

impl DaemonContext {
    /// Builds the dependencies of a daemon without an exported metrics registry.
    #[must_use]
    pub fn new(clients: impl Into<Clients>, reporter: Reporter) -> Self {
        Self {
            clients: clients.into(),
            reporter,
            metrics: Metrics::default(),
            health: Health::default(),
            state: SharedState::default(),
            limits: Limits::default(),
            clock: Clock::System,
            kubelet: None,
            commands: None,
            standby: None,
            order: None,
        }
    }
}

impl std::fmt::Debug for DaemonContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Runs the daemon of one node until it is stopped or the machine reboots.
///
/// Waits until the Node exists: a machine may be up before its kubelet has registered the node.
pub async fn run<S: System + 'static>(
    node: NodeName,
    host: Host<S>,
    around: DaemonContext,
    shutdown: Shutdown,
) -> DaemonExit {
    // One process may run many daemons; the span names the node in each log line.
    let span = tracing::info_span!("daemon", %node);
    Box::pin(run_in_span(node, host, around, shutdown)).instrument(span).await
}

async fn run_in_span<S: System + 'static>(
    node: NodeName,
    host: Host<S>,
    around: DaemonContext,
    shutdown: Shutdown,
) -> DaemonExit {
    // Stops with the process, and may stop alone so that it is started again.
    let shutdown = shutdown.child();
    let Some(_lock) = lock(&host, &shutdown).await else { return DaemonExit::Stopped };
    let own = || around.clients.own.clone();
    let probe = agent::confirm::OwnNode { client: own(), node: node.clone() };
    let reboot = around.limits.reboot;
    let host = match startup::confirm_or_roll_back(host, &probe, reboot, &shutdown).await {
        Confirmation::Proceed(host) | Confirmation::Failed(host, _) => SharedHost::new(host),
        Confirmation::Exit(ended) => return ended,
    };
    let (sender, observed) = latest::channel(NodeState::default());
    let (mcn_sender, mcn) = latest::channel(None);
    let (status, receiver) = machine_config_node::channel();
    let (error, errors) = latest::channel(None);
    // Not known before the node is.
    let (managed_sender, managed) = latest::channel(false);
    let watched = WatchConfig::default().health(&around.health);
    // The daemon updates its node also while a kind of ours is not installed.
    let own_kind = watched.clone().optional();
    let certificate_sync = CertificateSync {
        node: node.clone(),
        host: host.clone(),
        managed: managed.clone(),
        clients: around.clients.clone(),
        watched: own_kind.clone(),
        observed: observed.clone(),
        error,
        stop: shutdown.clone(),
    };
    let pinned_images = around.commands.clone().map(|run| PinnedImageSync {
        node: node.clone(),
        host: host.only_while(&managed),
        clients: around.clients.clone(),
        run,
        status: status.clone(),
        pull_pause: around.limits.pull_pause,
        watched: own_kind.clone(),
        observed: observed.clone(),
        machine_config_node: mcn.clone(),
    });
    let background = async {
        tokio::join!(
            watch_node(own(), node.clone(), watched, sender),
            machine_config_node::watch_object(own(), node.clone(), own_kind, mcn_sender),
            machine_config_node::write_updates(own(), node.clone(), around.clock, receiver, mcn),
            certificate_sync.run(),
            async {
                if let Some(pinned_images) = &pinned_images {
                    while_managed(&managed, || pinned_images.run()).await;
                }
            },
            watch_kubelet(&around),
            while_managed(&managed, || watch_logins(&host, &node, &around)),
            os_info::report(&host, &node, &around.metrics, around.commands.as_ref()),
        );
    };
    let daemon = async {
        let connected = connect(&node, &around, status.clone(), observed.clone(), &shutdown);
        let Some(cluster) = connected.await else { return DaemonExit::Stopped };
        let agent =
            Agent::new(node.clone(), host.clone(), cluster, observed.clone(), errors, &around);
        let agent = agent.reporting_managed(managed_sender);
        let ended = Box::pin(agent.run(shutdown.clone())).await;
        status.flush(around.limits.status_flush).await;
        ended
    };
    tokio::select! {
        ended = daemon => ended,
        // No background task is left, so that the daemon stops, too.
        () = background => DaemonExit::Stopped,
    }
}

async fn watch_kubelet(around: &DaemonContext) {
    if let Some(address) = around.kubelet.clone() {
        kubelet::watch(address, around.metrics.clone()).await;
    }
}

/// Annotates the node when a user logs in over SSH.
async fn watch_logins<S: System + 'static>(
    host: &SharedHost<S>,
    node: &NodeName,
    around: &DaemonContext,
) {
    match host.work(|host| host.root.try_clone()).await {
        Ok(Ok(root)) => access::watch(root, node.clone(), around.clients.node.clone()).await,
        Ok(Err(error)) => warn!(error = chain(&error), "Failed to watch SSH logins"),
        Err(error) => warn!(error = chain(&error), "Failed to watch SSH logins"),
    }
}

/// Waits until the Node exists and can be read, and the daemon may change its machine; returns none if a
/// shutdown is requested first.
async fn connect(
    node: &NodeName,
    around: &DaemonContext,
    status: StatusSender,
    mut observed: latest::Receiver<NodeState>,
    shutdown: &Shutdown,
) -> Option<ApiCluster> {
    tokio::select! {
        () = shutdown.requested() => return None,
        changed = observed.changed() => changed.ok()?,
    }
    let mut pause = FIRST_CONNECT_PAUSE;
    loop {
        match ApiCluster::new(node.clone(), around, status.clone()).await {
            // After the proof of health: a machine that has lost its network rolls back, and cannot ask.
            Ok(cluster) => return permit::wait(around, shutdown).await.then_some(cluster),
            Err(error) => warn!(%node, error = chain(&error), "Failed to read the node"),
        }
        // A node that does not change any more must be read again all the same.
        tokio::select! {
            () = shutdown.requested() => return None,
            changed = observed.changed() => changed.ok()?,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(MAX_CONNECT_PAUSE);
    }
}

/// Locks the machine against other processes; returns none if a shutdown is requested before the
/// lock is free.
async fn lock<S: System>(host: &Host<S>, shutdown: &Shutdown) -> Option<mco_host::Lock> {
    loop {
        match host.root.lock(disk::RECORDS) {
            Ok(Some(lock)) => return Some(lock),
            Ok(None) => {
                warn!("Waiting for another process, such as mco host apply, to unlock the machine");
            }
            Err(error) => warn!(error = chain(&error), "Failed to lock the machine"),
        }
        tokio::select! {
            () = shutdown.requested() => return None,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}
