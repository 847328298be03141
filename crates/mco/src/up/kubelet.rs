//! A simulated kubelet: registers its node, says whether it is ready, and sends heartbeats.
//!
//! Heartbeats are renewals of a Lease, as a real kubelet's are, so that nobody who watches nodes is
//! woken by them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use kube::Api;
use mco_cluster::{
    CallError, Clock, Shutdown,
    apply::{self, Guard},
    report,
};
use mco_daemon::simulate::Power;
use mco_host::{Glimpse, Root, SimulatedSystem, SystemError};
use serde_json::json;
use tokio::sync::watch;
use tracing::warn;

use super::fleet::Machine;

/// Where the leases of nodes are.
const LEASES: &str = "kube-node-lease";

/// How long a node counts as alive after a heartbeat.
const LEASE: Duration = Duration::from_mins(2);

/// Time between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// How long to wait after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// How often a kubelet looks at a machine that another process runs.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Plays the kubelet of one machine until told to stop.
pub(crate) async fn run(
    client: kube::Client,
    machine: Machine,
    root: PathBuf,
    clock: Clock,
    mut power: watch::Receiver<Power>,
    shutdown: Shutdown,
) {
    let kubelet = Kubelet {
        nodes: Api::all(client.clone()),
        leases: Api::namespaced(client, LEASES),
        machine,
        root,
        clock,
    };
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    let mut said: Option<(Power, String)> = None;
    loop {
        let now = (*power.borrow_and_update(), kubelet.boot_id());
        let mut wait = None;
        if said.as_ref() != Some(&now) {
            match kubelet.say(now.0, &now.1).await {
                Ok(()) => said = Some(now),
                Err(error) => {
                    let node = kubelet.machine.name.as_str();
                    warn!(node, error = report::chain(&error), "Cannot write the node's status");
                    wait = Some(RETRY);
                }
            }
        }
        tokio::select! {
            biased;
            // First: when everything stops, the machines do too, and that is no restart.
            () = shutdown.requested() => return,
            changed = power.changed() => if changed.is_err() { return },
            () = pause(wait) => {}
            _ = heartbeat.tick(), if matches!(said, Some((Power::On, _))) => kubelet.beat().await,
        }
    }
}

/// Tells of the power of a machine that another process runs, from what is on its disk.
pub(crate) async fn follow(root: PathBuf, power: watch::Sender<Power>, shutdown: Shutdown) {
    let mut looks = tokio::time::interval(LOOK_AGAIN);
    let mut before = None;
    loop {
        tokio::select! {
            () = shutdown.requested() => return,
            _ = looks.tick() => {}
        }
        let now = glimpse(&root);
        if now != before {
            let runs = now.as_ref().is_some_and(|now| !now.rebooting);
            power.send_replace(if runs { Power::On } else { Power::Off });
            before = now;
        }
    }
}

/// What the machine's disk says of it; nothing until it was first switched on.
fn glimpse(root: &Path) -> Option<Glimpse> {
    let seen = Root::open(root).map_err(SystemError::from);
    seen.and_then(|root| SimulatedSystem::glimpse(&root)).ok().flatten()
}

async fn pause(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

struct Kubelet {
    nodes: Api<Node>,
    leases: Api<Lease>,
    machine: Machine,
    root: PathBuf,
    clock: Clock,
}

impl Kubelet {
    /// Makes the node's status say what is the case; makes the node where it is missing.
    async fn say(&self, power: Power, boot_id: &str) -> Result<(), CallError> {
        let name = self.machine.name.as_str();
        let now = self.clock.now();
        let found = self.nodes.get_opt(name).await?;
        if found.is_none() {
            apply::create(&self.nodes, &self.machine.node()).await?;
        }
        let since = found.and_then(|node| since(&node, power)).unwrap_or(Time(now));
        let status = self.machine.status(power, boot_id, &since);
        apply::merge_status(&self.nodes, name, status, Guard::Any).await?;
        Ok(())
    }

    /// Which boot this is; empty until the machine has been installed.
    fn boot_id(&self) -> String {
        glimpse(&self.root).map(|seen| seen.boot_id).unwrap_or_default()
    }

    /// Renews the lease.
    async fn beat(&self) {
        let name = self.machine.name.as_str();
        if let Err(error) = self.renew(name, self.clock.now()).await {
            warn!(node = name, error = report::chain(&error), "Cannot renew the node's lease");
        }
    }

    async fn renew(&self, name: &str, now: Timestamp) -> Result<(), CallError> {
        let spec = json!({
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE.as_secs(),
            "renewTime": MicroTime(now),
        });
        let renewed = apply::merge(&self.leases, name, json!({"spec": spec}), Guard::Any).await;
        match renewed {
            Err(error) if error.is_not_found() => {
                let lease = json!({"metadata": {"name": name}, "spec": spec});
                let lease = serde_json::from_value(lease).expect("the object above is a Lease");
                apply::create(&self.leases, &lease).await.map(drop)
            }
            renewed => renewed.map(drop),
        }
    }
}

/// Since when the node has been as ready as it is now, if that has not changed.
fn since(node: &Node, power: Power) -> Option<Time> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let was = if ready.status == "True" { Power::On } else { Power::Off };
    if was == power { ready.last_transition_time.clone() } else { None }
}
