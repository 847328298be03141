//! A cluster for one machine: the embedded API server, operator and controller run on the host; the
//! daemon runs on the machine, as a systemd service.

use std::{fmt::Debug, net::SocketAddr, path::Path};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigPool, MachineConfiguration, annotation, label};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    PATIENCE,
    api::{ApiServer as _, Embedded, Process, command, wait},
    nodes::NodeSummary,
    object_wait,
};

/// The unit of the daemon.
pub const DAEMON: &str = "machine-config-daemon.service";

/// Path of the daemon's kubeconfig on the machine.
pub const KUBECONFIG: &str = "/etc/mco/kubeconfig";

/// Number of lines of the controller's log in an error.
const LOG_LINES: usize = 10;

/// A cluster with one node.
pub struct NodeCluster {
    node: String,
    runtime: Runtime,
    client: Client,
    // Dropped in this order, so that no process logs a missing server.
    controller: Process,
    _operator: Process,
    api: Embedded,
    _folder: tempfile::TempDir,
}

impl Debug for NodeCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeCluster").field("node", &self.node).finish_non_exhaustive()
    }
}

impl NodeCluster {
    /// Starts a cluster with these node disruption policies and a node of this name, which has no
    /// daemon yet. `mco` is the program under test.
    pub fn start(mco: &Path, node: &str, policies: &Value) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let api = Embedded::start(mco, folder.path())?;
        let start = |process: &str| {
            let mut command = command(mco);
            command.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
            command.arg("--kubeconfig").arg(api.kubeconfig()).env_remove("RELEASE_VERSION");
            Process::start(process, &mut command, &folder.path().join(format!("{process}.log")))
        };
        let (operator, controller) = (start("operator")?, start("controller")?);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let client = runtime.block_on(mco_cluster::client::connect(Some(api.kubeconfig())))?;
        let cluster = Self {
            node: node.to_owned(),
            runtime,
            client,
            controller,
            _operator: operator,
            api,
            _folder: folder,
        };
        cluster.install(policies)?;
        Ok(cluster)
    }

    fn install(&self, policies: &Value) -> anyhow::Result<()> {
        self.target("the pool to have a config", |pool| {
            !pool.spec.configuration.rendered.name.is_empty()
        })?;
        // The operator may have created the object.
        let settings = Patch::Apply(json!({
            "apiVersion": "operator.openshift.io/v1",
            "kind": "MachineConfiguration",
            "metadata": {"name": label::CLUSTER},
            "spec": {"managementState": "Managed", "nodeDisruptionPolicy": policies},
        }));
        let administrator = PatchParams::apply("administrator").force();
        let objects = Api::<MachineConfiguration>::all(self.client.clone());
        self.runtime.block_on(objects.patch(label::CLUSTER, &administrator, &settings))?;
        self.create::<Node>(&json!({
            "metadata": {
                "name": self.node,
                "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux"},
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    /// Returns the address of the API server on the host.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.api.url().trim_start_matches("https://").parse()?)
    }

    /// Returns a kubeconfig for a machine that reaches the API server at `address`.
    pub fn kubeconfig_at(&self, address: &str) -> anyhow::Result<String> {
        let text = String::from_utf8(mco_host::input::file(self.api.kubeconfig(), 1 << 20)?)?;
        Ok(text.replace(
            &format!("server: https://{}", self.address()?),
            &format!("server: https://{address}\n    tls-server-name: localhost"),
        ))
    }

    /// Returns a unit that runs `mco` of this path as the daemon of the node.
    #[must_use]
    pub fn daemon_unit(&self, mco: &str) -> String {
        let node = &self.node;
        format!(
            "\
[Unit]
Description=The daemon of node {node}
StartLimitIntervalSec=0
RequiresMountsFor={mco}
[Service]
ExecStart={mco} daemon start --node-name {node} --root-mount / --kubeconfig {KUBECONFIG} --kubelet-healthz-enabled=false
Restart=always
RestartSec=200ms
[Install]
WantedBy=multi-user.target
"
        )
    }

    /// Returns the target config of the pool, once the pool satisfies the condition.
    fn target(
        &self,
        what: &str,
        is: impl Fn(&MachineConfigPool) -> bool,
    ) -> anyhow::Result<String> {
        // The kinds can be watched only after the operator has installed them.
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        wait(what, PATIENCE, || {
            let pool = self.runtime.block_on(pools.get("worker")).ok()?;
            is(&pool).then_some(pool.spec.configuration.rendered.name)
        })
    }

    /// Returns the target config of the pool, once it contains this config.
    pub fn target_with(&self, config: &str) -> anyhow::Result<String> {
        self.target(&format!("the pool to have {config}"), |pool| {
            pool.spec.configuration.source.iter().any(|source| source.name == config)
        })
    }

    fn create<K>(&self, object: &Value) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        // Sent as text, because a raw config cannot be converted to a value.
        let object: K = serde_json::from_str(&object.to_string())?;
        let objects = Api::<K>::all(self.client.clone());
        self.runtime.block_on(objects.create(&PostParams::default(), &object))?;
        Ok(())
    }

    /// Adds a config to the worker pool.
    pub fn add(&self, name: &str, spec: &Value) -> anyhow::Result<()> {
        self.create::<MachineConfig>(&json!({
            "metadata": {"name": name, "labels": {label::ROLE: "worker"}},
            "spec": spec,
        }))
    }

    /// Deletes a config.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let configs = Api::<MachineConfig>::all(self.client.clone());
        self.runtime.block_on(configs.delete(name, &DeleteParams::default()))?;
        Ok(())
    }

    /// Sets the time in which the nodes of the worker pool must prove healthy after a reboot.
    pub fn confirm_within(&self, time: &str) -> anyhow::Result<()> {
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        let key = annotation::CONFIRM_MINUTES.name();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {(key): time}}}));
        self.runtime.block_on(pools.patch("worker", &PatchParams::default(), &patch))?;
        Ok(())
    }

    /// Returns the node as it is now.
    pub fn node(&self) -> anyhow::Result<NodeSummary> {
        let nodes = Api::<Node>::all(self.client.clone());
        Ok(NodeSummary::of(&self.runtime.block_on(nodes.get(&self.node))?))
    }

    /// Waits until the node satisfies the condition.
    pub fn wait(
        &self,
        what: &str,
        is: impl Fn(&NodeSummary) -> bool,
    ) -> anyhow::Result<NodeSummary> {
        let nodes = Api::<Node>::all(self.client.clone());
        let holds = |node: Option<&Node>| node.is_some_and(|node| is(&NodeSummary::of(node)));
        let found = object_wait::wait_until(nodes, &self.node, what, holds);
        let node = self.runtime.block_on(found).with_context(|| {
            let log = self.controller.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(LOG_LINES)..).unwrap_or_default();
            format!("{:?}\nthe controller:\n{}", self.node(), last.join("\n"))
        })?;
        Ok(NodeSummary::of(&node.context("the node does not exist")?))
    }
}
