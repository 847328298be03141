//! The node daemon: makes one machine what its config says, and says how that goes.
//!
//! Observe (annotations, disk, ledger) -> decide (pure) -> act (blocking, on record) -> report
//! (annotations, events). There are no globals, so that one process can run many daemons.

pub mod agent;
pub mod cluster;
pub mod confirm;
pub mod decide;
pub mod disk;
pub mod execute;
pub mod first_boot;
pub mod heal;
pub mod ledger;
pub mod simulate;
pub mod verify;
pub mod watch;

pub use agent::{Agent, Ended};

use kube::Client;
use mco_api::NodeName;
use mco_cluster::{Reporter, Shutdown, report::chain};
use mco_host::{Host, System};
use tokio::sync::watch as latest;
use tracing::{Instrument as _, warn};

use crate::cluster::{ApiCluster, NodeState, follow};

/// As whom the daemon speaks to the cluster.
#[derive(Clone)]
pub struct Clients {
    /// For everything that is read.
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

/// Runs the daemon of one node until told to stop or until the machine reboots.
///
/// Waits for the node to be there: a machine may be up before its kubelet has registered it.
pub async fn run<S: System + 'static>(
    node: NodeName,
    host: Host<S>,
    clients: Clients,
    reporter: Reporter,
    shutdown: Shutdown,
) -> Ended {
    let Some(_lock) = lock(&host, &shutdown).await else { return Ended::Stopped };
    let probe = agent::confirm::OwnNode { client: clients.own.clone(), node: node.clone() };
    let host = match confirm::settle(host, &probe, &shutdown).await {
        confirm::Settled::Go(host) => host,
        confirm::Settled::Ended(ended) => return ended,
    };
    let (sender, seen) = latest::channel(NodeState::default());
    let mut first = seen.clone();
    let daemon = async {
        let cluster = loop {
            // Nobody watches the node any longer: we were told to stop.
            if first.changed().await.is_err() {
                return Ended::Stopped;
            }
            match ApiCluster::new(&clients, node.clone(), reporter.clone()).await {
                Ok(cluster) => break cluster,
                Err(error) => warn!(%node, error = chain(&error), "Cannot read the node"),
            }
        };
        // One process may run many daemons; the log must tell whose line is whose.
        let span = tracing::info_span!("daemon", %node);
        let agent = Agent::new(node.clone(), host, cluster, seen);
        Box::pin(agent.run(shutdown.clone()).instrument(span)).await
    };
    let following = async {
        tokio::select! {
            () = follow(clients.own.clone(), node.clone(), sender) => {}
            () = shutdown.requested() => {}
        }
    };
    tokio::pin!(daemon);
    tokio::select! {
        ended = &mut daemon => ended,
        () = following => daemon.await,
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
            () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
        }
    }
}
