//! A cluster for one machine. The embedded API server, operator and controller run in the test; the
//! daemon runs on the machine as a systemd service.

use std::{fmt::Debug, net::SocketAddr, path::Path};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigPool, MachineConfiguration, annotation, label};
use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, Embedded, Process, command, wait},
    lab::{Machine, StandaloneMachine},
    nodes::NodeSummary,
    object_wait,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The unit of the daemon.
pub(crate) const DAEMON: &str = "machine-config-daemon.service";

const KUBECONFIG: &str = "/etc/mco/kubeconfig";

/// A machine that is a node of a cluster.
pub(crate) struct Cluster<'m> {
    pub(crate) machine: &'m Machine,
    runtime: Runtime,
    client: Client,
    // Dropped in this order, so that no process logs a missing server.
    controller: Process,
    _operator: Process,
    _api: Embedded,
    _folder: tempfile::TempDir,
}

impl<'m> Cluster<'m> {
    /// Creates a cluster with these node disruption policies and a node for the machine, whose
    /// daemon is not started yet.
    pub(crate) fn around(lone: &'m StandaloneMachine, policies: &Value) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path())?;
        let start = |process: &str| {
            let mut command = command(env!("CARGO_BIN_EXE_mco"));
            command.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
            command.arg("--kubeconfig").arg(api.kubeconfig()).env_remove("RELEASE_VERSION");
            Process::start(process, &mut command, &folder.path().join(format!("{process}.log")))
        };
        let (operator, controller) = (start("operator")?, start("controller")?);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let client = runtime.block_on(mco_cluster::client::connect(Some(api.kubeconfig())))?;
        install_daemon(lone, &api)?;
        let machine = lone.machine();
        let cluster = Self {
            machine,
            runtime,
            client,
            controller,
            _operator: operator,
            _api: api,
            _folder: folder,
        };
        cluster.install(policies)?;
        Ok(cluster)
    }

    fn install(&self, policies: &Value) -> anyhow::Result<()> {
        self.target("the pool to have a config", |pool| {
            !pool.spec.configuration.rendered.name.is_empty()
        })?;
        self.create::<MachineConfiguration>(&json!({
            "metadata": {"name": label::CLUSTER},
            "spec": {"managementState": "Managed", "nodeDisruptionPolicy": policies},
        }))?;
        self.create::<Node>(&json!({
            "metadata": {
                "name": self.machine.name(),
                "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux"},
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
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
    pub(crate) fn target_with(&self, config: &str) -> anyhow::Result<String> {
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
    pub(crate) fn add(&self, name: &str, storage: &Value, units: &Value) -> anyhow::Result<()> {
        self.create::<MachineConfig>(&json!({
            "metadata": {"name": name, "labels": {label::ROLE: "worker"}},
            "spec": {"config": {
                "ignition": {"version": "3.5.0"},
                "storage": {"files": storage},
                "systemd": {"units": units},
            }},
        }))
    }

    /// Deletes a config.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        let configs = Api::<MachineConfig>::all(self.client.clone());
        self.runtime.block_on(configs.delete(name, &DeleteParams::default()))?;
        Ok(())
    }

    /// Sets the time in which the nodes of the worker pool must prove healthy after a reboot.
    pub(crate) fn confirm_within(&self, time: &str) -> anyhow::Result<()> {
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        let key = annotation::CONFIRM_MINUTES.name();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {(key): time}}}));
        self.runtime.block_on(pools.patch("worker", &PatchParams::default(), &patch))?;
        Ok(())
    }

    /// Returns the node as it is now.
    pub(crate) fn node(&self) -> anyhow::Result<NodeSummary> {
        let nodes = Api::<Node>::all(self.client.clone());
        Ok(NodeSummary::of(&self.runtime.block_on(nodes.get(self.machine.name()))?))
    }

    /// Waits until the node satisfies the condition; prints the logs on a timeout.
    pub(crate) fn wait(
        &self,
        what: &str,
        is: impl Fn(&NodeSummary) -> bool,
    ) -> anyhow::Result<NodeSummary> {
        let nodes = Api::<Node>::all(self.client.clone());
        let holds = |node: Option<&Node>| node.is_some_and(|node| is(&NodeSummary::of(node)));
        let found = object_wait::wait_until(nodes, self.machine.name(), what, holds);
        let found = self.runtime.block_on(found);
        let why = || {
            let log = self.controller.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(10)..).unwrap_or_default();
            format!(
                "{:?}\n{}\nthe controller:\n{}",
                self.node(),
                self.machine.journal(None, 60).unwrap_or_default(),
                last.join("\n")
            )
        };
        let node = found.with_context(why)?;
        Ok(NodeSummary::of(&node.context("the node does not exist")?))
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

/// Installs the daemon as a service that starts at boot, without starting it.
fn install_daemon(lone: &StandaloneMachine, api: &Embedded) -> anyhow::Result<()> {
    let machine = lone.machine();
    let server: SocketAddr = api.url().trim_start_matches("https://").parse()?;
    let near = lone.expose_host_server(server)?;
    let kubeconfig = String::from_utf8(mco_host::input::file(api.kubeconfig(), 1 << 20)?)?;
    let kubeconfig = kubeconfig.replace(
        &format!("server: https://{server}"),
        &format!("server: https://{near}\n    tls-server-name: localhost"),
    );
    machine.write(KUBECONFIG, &kubeconfig)?;
    let name = machine.name();
    let unit = format!(
        "\
[Unit]
Description=The daemon of node {name}
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/local/bin/mco daemon start --node-name {name} --root-mount / --kubeconfig {KUBECONFIG} --kubelet-healthz-enabled=false
Restart=always
RestartSec=200ms
[Install]
WantedBy=multi-user.target
"
    );
    machine.write(&format!("/etc/systemd/system/{DAEMON}"), &unit)?;
    machine.ask(&["systemctl", "daemon-reload"])?;
    machine.ask(&["systemctl", "enable", DAEMON]).map(drop)
}
