//! A simulated kubelet: registers its node, updates the node status and renews the node lease.
//!
//! Heartbeats are renewals of a Lease, as those of a real kubelet, so that they wake no watch of
//! nodes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
};
use mco_cluster::{
    Api, CallError, Clock, Shutdown,
    apply::{self, Precondition},
    report,
};
use mco_daemon::simulate::Power;
use mco_host::{BootState, Root, SimulatedSystem, SystemError};
use serde_json::json;
use tokio::sync::watch;
use tracing::warn;

use super::fleet::Machine;

/// Namespace of the node leases.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Time that a node counts as alive after a heartbeat.
const LEASE_DURATION: Duration = Duration::from_mins(2);

/// Time between heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Interval at which a kubelet reads the state of a machine that another process runs.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The time at which a kubelet registers its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// At once, so that a machine can find its pool by its node.
    AtOnce,
    /// After the first boot of the machine, as a real kubelet does.
    AfterFirstBoot,
}

/// The clients of a kubelet.
pub(crate) struct Clients {
    /// The client of the administrator, who gives the node its role: a kubelet may not.
    pub(crate) administrator: kube::Client,
    /// The client of the node.
    pub(crate) node: kube::Client,
}

/// Runs the kubelet of one machine until shutdown.
pub(crate) async fn run(
    clients: Clients,
    machine: Machine,
    root: PathBuf,
    clock: Clock,
    (mut power, registration): (watch::Receiver<Power>, Registration),
    shutdown: Shutdown,
) {
    let kubelet = Kubelet {
        registration: Api::all(clients.administrator),
        nodes: Api::all(clients.node.clone()),
        leases: Api::namespaced(clients.node, LEASE_NAMESPACE),
        machine,
        root,
        clock,
    };
    let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
    let mut reported: Option<(Power, String)> = None;
    loop {
        let now = (*power.borrow_and_update(), kubelet.boot_id());
        let mut wait = None;
        let is_early = registration == Registration::AfterFirstBoot
            && reported.is_none()
            && now.0 == Power::Off;
        if reported.as_ref() != Some(&now) && !is_early {
            match kubelet.update_status(now.0, &now.1).await {
                Ok(()) => reported = Some(now),
                Err(error) => {
                    let node = kubelet.machine.name.as_str();
                    warn!(node, error = report::chain(&error), "Failed to update the node status");
                    wait = Some(RETRY);
                }
            }
        }
        tokio::select! {
            biased;
            // First, because the power of the machines also changes at shutdown, which is no
            // restart.
            () = shutdown.requested() => return,
            changed = power.changed() => if changed.is_err() { return },
            () = pause(wait) => {}
            _ = heartbeat.tick(), if matches!(reported, Some((Power::On, _))) => {
                kubelet.renew_lease().await;
                if kubelet.is_unknown().await {
                    reported = None;
                }
            }
        }
    }
}

/// Follows the power of a machine that another process runs, by the state on its disk.
pub(crate) async fn follow(root: PathBuf, power: watch::Sender<Power>, shutdown: Shutdown) {
    let mut polls = tokio::time::interval(POLL_INTERVAL);
    let mut before = None;
    loop {
        tokio::select! {
            () = shutdown.requested() => return,
            _ = polls.tick() => {}
        }
        let now = machine_state(&root);
        if now != before {
            let runs = now.as_ref().is_some_and(|now| !now.rebooting);
            power.send_replace(if runs { Power::On } else { Power::Off });
            before = now;
        }
    }
}

/// Returns the state on the disk of the machine; `None` until its first boot.
fn machine_state(root: &Path) -> Option<BootState> {
    let opened = Root::open(root).map_err(SystemError::from);
    opened.and_then(|root| SimulatedSystem::boot_state(&root)).ok().flatten()
}

async fn pause(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

struct Kubelet {
    registration: Api<Node>,
    nodes: Api<Node>,
    leases: Api<Lease>,
    machine: Machine,
    root: PathBuf,
    clock: Clock,
}

impl Kubelet {
    /// Updates the node status; creates the node if it is missing.
    async fn update_status(&self, power: Power, boot_id: &str) -> Result<(), CallError> {
        let name = self.machine.name.as_str();
        let now = self.clock.now();
        let found = self.nodes.get_opt(name).await?;
        if found.is_none() {
            apply::create(&self.registration, &self.machine.node()).await?;
        }
        let since = found.and_then(|node| since(&node, power)).unwrap_or(Time(now));
        let status = self.machine.status(power, boot_id, &since);
        apply::merge_status(&self.nodes, name, status, Precondition::Any).await?;
        Ok(())
    }

    /// Returns the id of the current boot; empty until the machine is installed.
    fn boot_id(&self) -> String {
        machine_state(&self.root).map(|state| state.boot_id).unwrap_or_default()
    }

    /// Returns true if the node lifecycle controller took this kubelet for dead, as after a pause of
    /// the whole process.
    async fn is_unknown(&self) -> bool {
        let node = self.nodes.get_opt(self.machine.name.as_str()).await.ok().flatten();
        let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
        conditions.iter().any(|it| it.type_ == "Ready" && it.status == "Unknown")
    }

    /// Renews the lease.
    async fn renew_lease(&self) {
        let name = self.machine.name.as_str();
        if let Err(error) = self.try_renew(name, self.clock.now()).await {
            warn!(node = name, error = report::chain(&error), "Failed to renew the node lease");
        }
    }

    async fn try_renew(&self, name: &str, now: Timestamp) -> Result<(), CallError> {
        let spec = json!({
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_DURATION.as_secs(),
            "renewTime": MicroTime(now),
        });
        let renewed =
            apply::merge(&self.leases, name, json!({"spec": spec}), Precondition::Any).await;
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

/// Returns the time of the last transition of `Ready` if the condition has not changed since.
fn since(node: &Node, power: Power) -> Option<Time> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    let was = if ready.status == "True" { Power::On } else { Power::Off };
    if was == power { ready.last_transition_time.clone() } else { None }
}
