//! A cluster whose node is a machine of the lab.

use std::{ops::Deref, path::Path};

use anyhow::Context as _;
pub(crate) use mco_testkit::node_cluster::DAEMON;
use mco_testkit::{
    lab::{Machine, StandaloneMachine},
    node_cluster::{KUBECONFIG, NodeCluster},
    nodes::NodeSummary,
};
use serde_json::{Value, json};

/// A machine that is a node of a cluster.
pub(crate) struct Cluster<'m> {
    pub(crate) machine: &'m Machine,
    cluster: NodeCluster,
}

impl Deref for Cluster<'_> {
    type Target = NodeCluster;

    fn deref(&self) -> &NodeCluster {
        &self.cluster
    }
}

impl<'m> Cluster<'m> {
    /// Creates a cluster with these node disruption policies and a node for the machine, whose
    /// daemon is not started yet.
    pub(crate) fn around(lone: &'m StandaloneMachine, policies: &Value) -> anyhow::Result<Self> {
        let machine = lone.machine();
        let mco = Path::new(env!("CARGO_BIN_EXE_mco"));
        let cluster = NodeCluster::start(mco, machine.name(), policies)?;
        let near = lone.expose_host_server(cluster.address()?)?;
        machine.write(KUBECONFIG, &cluster.kubeconfig_at(&near.to_string())?)?;
        let unit = cluster.daemon_unit("/usr/local/bin/mco");
        machine.write(&format!("/etc/systemd/system/{DAEMON}"), &unit)?;
        machine.ask(&["systemctl", "daemon-reload"])?;
        machine.ask(&["systemctl", "enable", DAEMON])?;
        Ok(Self { machine, cluster })
    }

    /// Adds a config of files and units to the worker pool.
    pub(crate) fn add(&self, name: &str, storage: &Value, units: &Value) -> anyhow::Result<()> {
        let config = json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"files": storage},
            "systemd": {"units": units},
        });
        self.cluster.add(name, &json!({ "config": config }))
    }

    /// Waits until the node satisfies the condition; returns the logs with an error.
    pub(crate) fn wait(
        &self,
        what: &str,
        is: impl Fn(&NodeSummary) -> bool,
    ) -> anyhow::Result<NodeSummary> {
        let found = self.cluster.wait(what, is);
        found.with_context(|| self.machine.journal(None, 60).unwrap_or_default())
    }

    /// Adds a config and waits until the node has it.
    pub(crate) fn roll_out(
        &self,
        name: &str,
        storage: &Value,
        units: &Value,
    ) -> anyhow::Result<NodeSummary> {
        let before = self.node()?.current;
        self.add(name, storage, units)?;
        self.wait(&format!("it to have {name}"), |node| {
            node.is_done() && node.current != before && !node.cordoned
        })
    }
}
