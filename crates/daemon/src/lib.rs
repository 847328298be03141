//! The node daemon: makes one machine what its config says, and says how that goes.
//!
//! Observe (annotations, disk, ledger) -> decide (pure) -> act (blocking, on record) -> report
//! (annotations, conditions, events, metrics). There are no globals, so that one process can run many
//! daemons.

pub mod about;
mod access;
pub mod agent;
mod certificates;
pub mod cluster;
pub mod confirm;
pub mod decide;
pub mod disk;
pub mod execute;
pub mod first_boot;
pub mod heal;
pub mod kubelet;
pub mod ledger;
pub mod metrics;
pub mod pinned;
pub mod previous_logs;
pub mod report;
pub mod shared;
pub mod simulate;
pub mod state;
pub mod verify;
pub mod watch;

pub use agent::{Agent, Ended};

use std::time::Duration;

use kube::Client;
use mco_api::NodeName;
use mco_cluster::{Clock, Reporter, Shutdown, report::chain};
use mco_host::{Host, System};
use tokio::sync::watch as latest;
use tracing::{Instrument as _, warn};

use crate::{
    certificates::Keeper,
    cluster::{ApiCluster, NodeState, follow},
    confirm::standby::Program,
    kubelet::HealthAddress,
    metrics::Metrics,
    pinned::{Pinner, RunCommand},
    report::Mouth,
    shared::SharedHost,
    state::Glass,
};

/// As whom the daemon speaks to the cluster.
#[derive(Clone)]
pub struct Clients {
    /// For everything that is read, and for the node's MachineConfigNode.
    pub own: Client,
    /// For what it says of its node. The kubelet's own where there is one: the cluster lets a kubelet
    /// change its own node and no other.
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

/// How long the daemon waits for others before it says that something is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the pods to leave: long enough for those that take their time, short enough for somebody
    /// to hear of it.
    pub drain: Duration,
    /// For the node to be open to pods again.
    pub uncordon: Duration,
    /// For a kubelet that was well before an update to be well after it.
    pub kubelet: Duration,
    /// For the operator to say what a change of the disruption policies comes to.
    pub policies: Duration,
    /// For others to answer once the daemon was told to stop.
    pub farewell: Duration,
    /// For what was said last to be written before the machine goes down.
    pub last_words: Duration,
    /// For the machine to prove healthy after a reboot, where its pool does not say; none of it keeps
    /// every config.
    pub confirm: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            drain: Duration::from_hours(1),
            uncordon: Duration::from_mins(10),
            kubelet: Duration::from_mins(2),
            policies: Duration::from_mins(2),
            farewell: Duration::from_secs(5),
            last_words: Duration::from_secs(3),
            confirm: confirm::DEADLINE,
        }
    }
}

/// What a daemon has around it.
#[derive(Clone)]
pub struct Surroundings {
    /// As whom it speaks to the cluster.
    pub clients: Clients,
    /// How it tells people.
    pub reporter: Reporter,
    /// What it counts.
    pub metrics: Metrics,
    /// Where it shows what it is doing.
    pub glass: Glass,
    /// How long it waits for others.
    pub limits: Limits,
    /// The time of day.
    pub clock: Clock,
    /// Where the machine's kubelet says whether it is well; it is not asked without.
    pub kubelet: Option<HealthAddress>,
    /// How commands are run on the machine; without, images are not pulled ahead of time.
    pub commands: Option<RunCommand>,
    /// What is left on the machine for a reboot after which no daemon comes up; nothing without.
    pub standby: Option<Program>,
}

impl Surroundings {
    /// Those of a daemon whose numbers nobody reads.
    #[must_use]
    pub fn new(clients: impl Into<Clients>, reporter: Reporter) -> Self {
        Self {
            clients: clients.into(),
            reporter,
            metrics: Metrics::default(),
            glass: Glass::default(),
            limits: Limits::default(),
            clock: Clock::System,
            kubelet: None,
            commands: None,
            standby: None,
        }
    }
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Runs the daemon of one node until told to stop or until the machine reboots.
///
/// Waits for the node to be there: a machine may be up before its kubelet has registered it.
pub async fn run<S: System + 'static>(
    node: NodeName,
    host: Host<S>,
    around: Surroundings,
    shutdown: Shutdown,
) -> Ended {
    // One process may run many daemons; the log must tell whose line is whose.
    let span = tracing::info_span!("daemon", %node);
    Box::pin(run_in_span(node, host, around, shutdown)).instrument(span).await
}

async fn run_in_span<S: System + 'static>(
    node: NodeName,
    host: Host<S>,
    around: Surroundings,
    shutdown: Shutdown,
) -> Ended {
    // Ends with the whole process, and may end alone to start anew.
    let shutdown = shutdown.child();
    let Some(_lock) = lock(&host, &shutdown).await else { return Ended::Stopped };
    let client = around.clients.own.clone();
    let probe = agent::confirm::OwnNode { client, node: node.clone() };
    let host = match confirm::settle(host, &probe, &shutdown).await {
        confirm::Settled::Go(host) => SharedHost::new(host),
        confirm::Settled::Ended(ended) => return ended,
    };
    let (sender, seen) = latest::channel(NodeState::default());
    let (said, heard) = latest::channel(None);
    let (mouth, ear) = report::channel();
    let (trouble, troubles) = latest::channel(None);
    let keeper = Keeper {
        node: node.clone(),
        host: host.clone(),
        clients: around.clients.clone(),
        seen: seen.clone(),
        trouble,
        stop: shutdown.clone(),
    };
    let pinner = around.commands.clone().map(|run| Pinner {
        node: node.clone(),
        host: host.clone(),
        clients: around.clients.clone(),
        run,
        mouth: mouth.clone(),
        seen: seen.clone(),
        report: heard.clone(),
    });
    let own = || around.clients.own.clone();
    let background = async {
        tokio::join!(
            follow(own(), node.clone(), sender),
            report::follow(own(), node.clone(), said),
            report::run(own(), node.clone(), around.clock, ear, heard),
            keeper.run(),
            async {
                if let Some(pinner) = pinner {
                    pinner.work().await;
                }
            },
            async {
                if let Some(address) = around.kubelet.clone() {
                    kubelet::watch(address, around.metrics.clone()).await;
                }
            },
            see_logins(&host, &node, &around),
            about::tell(&host, &node, &around.metrics, around.commands.as_ref()),
        );
    };
    let daemon = async {
        let Some(cluster) = join(&node, &around, mouth.clone(), seen.clone(), &shutdown).await
        else {
            return Ended::Stopped;
        };
        let agent =
            Agent::new(node.clone(), host.clone(), cluster, seen.clone(), troubles, &around);
        let ended = Box::pin(agent.run(shutdown.clone())).await;
        mouth.flush(around.limits.last_words).await;
        ended
    };
    tokio::select! {
        ended = daemon => ended,
        // Nobody is left to listen, so the daemon is at its end, too.
        () = background => Ended::Stopped,
    }
}

/// Says on the node that somebody logged in.
async fn see_logins<S: System + 'static>(
    host: &SharedHost<S>,
    node: &NodeName,
    around: &Surroundings,
) {
    match host.work(|host| host.root.try_clone()).await {
        Ok(Ok(root)) => access::watch(root, node.clone(), around.clients.node.clone()).await,
        Ok(Err(error)) => warn!(error = chain(&error), "Cannot tell whether somebody logs in"),
        Err(error) => warn!(error = chain(&error), "Cannot tell whether somebody logs in"),
    }
}

/// The cluster once the node is part of it; none if told to stop before.
async fn join(
    node: &NodeName,
    around: &Surroundings,
    mouth: Mouth,
    mut seen: latest::Receiver<NodeState>,
    shutdown: &Shutdown,
) -> Option<ApiCluster> {
    loop {
        tokio::select! {
            () = shutdown.requested() => return None,
            changed = seen.changed() => changed.ok()?,
        }
        match ApiCluster::new(node.clone(), around, mouth.clone()).await {
            Ok(cluster) => return Some(cluster),
            Err(error) => warn!(%node, error = chain(&error), "Cannot read the node"),
        }
    }
}

/// Keeps others from the machine; none if told to stop before they let go of it.
async fn lock<S: System>(host: &Host<S>, shutdown: &Shutdown) -> Option<mco_host::Lock> {
    loop {
        match host.root.lock(disk::RECORDS) {
            Ok(Some(lock)) => return Some(lock),
            Ok(None) => warn!("Somebody else is at work on this machine, such as mco host apply"),
            Err(error) => warn!(error = chain(&error), "Cannot lock the machine"),
        }
        tokio::select! {
            () = shutdown.requested() => return None,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}
