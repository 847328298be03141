//! The simulated machines: their names, roles and Node objects.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Client, api::DeleteParams};
use mco_api::{MachineConfigNode, NodeName, label};
use mco_cluster::{Api, CallError};
use mco_daemon::simulate::Power;
use serde_json::{Value, json};

use super::{Settings, kubelet::LEASE_NAMESPACE, state_dir::StateDir};
use crate::print;

/// The role of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Runs the control plane.
    Master,
    /// Runs the workload.
    Worker,
}

impl Role {
    /// Returns the word used in labels and pool names.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Worker => "worker",
        }
    }
}

/// A simulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) name: NodeName,
    pub(crate) role: Role,
    /// Number among all machines, from which the address is derived.
    number: u16,
}

/// Workers with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workers {
    /// Number of the first worker.
    first: u16,
    count: u16,
    /// Number of the machines before the first worker that are not in the same list.
    before: u16,
}

impl Workers {
    /// Returns one more worker than a cluster has.
    pub(crate) fn next(masters: u16, workers: Self) -> Self {
        let first = workers.first.saturating_add(workers.count);
        Self { first, count: 1, before: masters.saturating_add(first) }
    }
}

impl From<u16> for Workers {
    fn from(count: u16) -> Self {
        Self { first: 0, count, before: 0 }
    }
}

impl From<Workers> for usize {
    fn from(workers: Workers) -> Self {
        Self::from(workers.count)
    }
}

/// Returns all machines, masters first.
pub(crate) fn machines(masters: u16, workers: impl Into<Workers>) -> Vec<Machine> {
    let Workers { first, count, before } = workers.into();
    let all = (0..masters).map(|index| (Role::Master, index));
    let all = all.chain((first..).take(usize::from(count)).map(|index| (Role::Worker, index)));
    all.zip(before.saturating_add(1)..)
        .map(|((role, index), number)| {
            let name = format!("{}-{index}", role.word());
            let name = name.parse().expect("a role and a number form a valid name");
            Machine { name, role, number }
        })
        .collect()
}

/// Removes machines that an earlier start had and this one has not: their objects, then their disks.
pub(crate) async fn remove_surplus(
    client: &Client,
    state: &StateDir,
    settings: &Settings,
) -> anyhow::Result<()> {
    let kept = machines(settings.masters, settings.workers);
    let kept: BTreeSet<&str> = kept.iter().map(|machine| machine.name.as_str()).collect();
    for name in state.nodes()? {
        let is_ours =
            [Role::Master, Role::Worker].iter().any(|role| number(*role, &name).is_some());
        if !is_ours || kept.contains(name.as_str()) {
            continue;
        }
        print::note(&format!("removing {name}, which --nodes or --masters leaves out"));
        let gone = |done: Result<(), CallError>| match done {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        };
        gone(delete::<Node>(&Api::all(client.clone()), &name).await)?;
        gone(delete::<MachineConfigNode>(&Api::all(client.clone()), &name).await)?;
        let leases = Api::namespaced(client.clone(), LEASE_NAMESPACE);
        gone(delete::<Lease>(&leases, &name).await)?;
        state.remove_node(&name)?;
    }
    Ok(())
}

async fn delete<K: mco_cluster::Object>(api: &Api<K>, name: &str) -> Result<(), CallError> {
    api.delete(name, &DeleteParams::default()).await.map(drop).map_err(CallError::from)
}

/// Operating system that simulated machines report.
const OS_IMAGE: &str = "Simulated CoreOS";

/// Returns true if a node is a simulated machine.
pub(crate) fn is_simulated(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| info.os_image == OS_IMAGE)
}

/// Returns the number of a machine of a role, counted from zero, from its name.
pub(crate) fn number(role: Role, name: &str) -> Option<u16> {
    let number: u16 = name.strip_prefix(role.word())?.strip_prefix('-')?.parse().ok()?;
    (name == format!("{}-{number}", role.word())).then_some(number)
}

impl Machine {
    /// Returns the Node as a kubelet registers it.
    pub(crate) fn node(&self) -> Node {
        let mut labels = json!({
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.name.as_str(),
            "kubernetes.io/os": "linux",
        });
        let mut taints = json!([]);
        let mut role = |word: &str| {
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(format!("{}{word}", label::NODE_ROLE_PREFIX), json!(""));
            }
        };
        role(self.role.word());
        if self.role == Role::Master {
            role("control-plane");
            taints = json!([{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}]);
        }
        let node = json!({
            "metadata": {"name": self.name.as_str(), "labels": labels},
            "spec": {"taints": taints},
        });
        serde_json::from_value(node).expect("the object above is a Node")
    }

    /// Returns the node status that the kubelet reports.
    pub(crate) fn status(&self, power: Power, boot_id: &str, since: &Time) -> Value {
        let (ready, reason, message) = match power {
            Power::On => ("True", "KubeletReady", "kubelet is posting ready status"),
            Power::Off => ("False", "NodeDown", "the simulated machine is down"),
        };
        let healthy = |kind: &str, reason: &str| {
            json!({"type": kind, "status": "False", "reason": reason, "message": "",
                   "lastTransitionTime": since})
        };
        let [high, low] = self.number.to_be_bytes();
        json!({
            "conditions": [
                healthy("MemoryPressure", "KubeletHasSufficientMemory"),
                healthy("DiskPressure", "KubeletHasNoDiskPressure"),
                healthy("PIDPressure", "KubeletHasSufficientPID"),
                {"type": "Ready", "status": ready, "reason": reason, "message": message,
                 "lastTransitionTime": since},
            ],
            "addresses": [
                {"type": "InternalIP", "address": format!("10.0.{high}.{low}")},
                {"type": "Hostname", "address": self.name.as_str()},
            ],
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "250"},
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "250"},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": boot_id,
                "containerRuntimeVersion": "simulated://1",
                "kernelVersion": "simulated",
                "kubeProxyVersion": "",
                "kubeletVersion": concat!("v1.36.0+mco-", env!("CARGO_PKG_VERSION")),
                "machineID": format!("{:032x}", self.number),
                "operatingSystem": "linux",
                "osImage": OS_IMAGE,
                "systemUUID": format!("{:032x}", self.number),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_the_labels_that_pools_select() {
        let machines = machines(1, 2_u16);
        let names: Vec<&str> = machines.iter().map(|machine| machine.name.as_str()).collect();
        assert_eq!(names, ["master-0", "worker-0", "worker-1"]);
        let labels = |index: usize| machines[index].node().metadata.labels.unwrap();
        assert!(labels(0).contains_key("node-role.kubernetes.io/master"));
        assert!(labels(0).contains_key("node-role.kubernetes.io/control-plane"));
        assert!(labels(1).contains_key("node-role.kubernetes.io/worker"));
        assert!(!labels(1).contains_key("node-role.kubernetes.io/master"));
    }

    #[test]
    fn the_next_worker_continues_names_and_addresses() {
        let next = machines(0, Workers::next(3, Workers::from(2_u16)));
        let all = machines(3, 3_u16);
        assert_eq!(next.as_slice(), &all[5..]);
    }

    #[test]
    fn only_names_of_machines_have_a_number() {
        assert_eq!(number(Role::Worker, "worker-12"), Some(12));
        for name in ["worker-", "worker-01", "worker-x", "master-1", "other", "worker-99999"] {
            assert_eq!(number(Role::Worker, name), None, "{name}");
        }
    }

    #[test]
    fn a_machine_that_restarts_is_not_ready() {
        let machine = &machines(0, 300_u16)[299];
        let ready = |power| {
            let status = machine.status(power, "boot", &Time(jiff::Timestamp::UNIX_EPOCH));
            assert_eq!(status["addresses"][0]["address"], "10.0.1.44");
            let conditions = status["conditions"].as_array().unwrap().clone();
            let ready = conditions.into_iter().find(|found| found["type"] == "Ready").unwrap();
            ready["status"].clone()
        };
        assert_eq!(ready(Power::On), "True");
        assert_eq!(ready(Power::Off), "False");
    }
}
