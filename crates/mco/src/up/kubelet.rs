//! A simulated kubelet: registers its node, says whether it is ready, and sends heartbeats.
//!
//! Heartbeats are renewals of a Lease, as a real kubelet's are, so that nobody who watches nodes is
//! woken by them.

use std::time::Duration;

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
use serde_json::json;
use tokio::sync::watch;
use tracing::warn;

use super::fleet::{Machine, Power};

/// Where the leases of nodes are.
const LEASES: &str = "kube-node-lease";

/// How long a node counts as alive after a heartbeat.
const LEASE: Duration = Duration::from_secs(120);

/// Time between heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// How long to wait after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// What a kubelet knows of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// Whether the machine runs.
    pub(crate) power: Power,
    /// Differs after every restart.
    pub(crate) boot_id: String,
}

/// Plays the kubelet of one machine until told to stop.
pub(crate) async fn run(
    client: kube::Client,
    machine: Machine,
    clock: Clock,
    mut pulse: watch::Receiver<Pulse>,
    shutdown: Shutdown,
) {
    let kubelet = Kubelet {
        nodes: Api::all(client.clone()),
        leases: Api::namespaced(client, LEASES),
        machine,
        clock,
    };
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    let mut said: Option<Pulse> = None;
    loop {
        let now = pulse.borrow_and_update().clone();
        let mut wait = None;
        if said.as_ref() != Some(&now) {
            match kubelet.say(&now).await {
                Ok(()) => said = Some(now),
                Err(error) => {
                    let node = kubelet.machine.name.as_str();
                    warn!(node, error = report::chain(&error), "Cannot write the node's status");
                    wait = Some(RETRY);
                }
            }
        }
        tokio::select! {
            () = shutdown.requested() => return,
            () = pause(wait) => {}
            changed = pulse.changed() => if changed.is_err() { return },
            _ = heartbeat.tick() => kubelet.beat(said.as_ref()).await,
        }
    }
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
    clock: Clock,
}

impl Kubelet {
    /// Makes the node's status say what is the case; makes the node where it is missing.
    async fn say(&self, pulse: &Pulse) -> Result<(), CallError> {
        let name = self.machine.name.as_str();
        let now = self.clock.now();
        let since = match self.nodes.get_opt(name).await? {
            Some(node) => since(&node, pulse.power).unwrap_or(Time(now)),
            None => {
                apply::create(&self.nodes, &self.machine.node()).await?;
                Time(now)
            }
        };
        let status = self.machine.status(pulse.power, &pulse.boot_id, &since);
        apply::merge_status(&self.nodes, name, status, Guard::Any).await?;
        Ok(())
    }

    /// Renews the lease; a machine that restarts has nobody to do so.
    async fn beat(&self, said: Option<&Pulse>) {
        if said.is_none_or(|said| said.power == Power::Down) {
            return;
        }
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
    let was = if ready.status == "True" { Power::Up } else { Power::Down };
    if was == power { ready.last_transition_time.clone() } else { None }
}
