//! One node, its cluster, and the simulated controllers.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Node},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool, label};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::{Health, NoteCount, Reporter, Shutdown, admin::Registry};
use mco_daemon::{
    DaemonContext, Limits,
    metrics::Metrics,
    pinned::RunCommand,
    simulate::{FirstConfig, Machine, Power, simulate},
    state::{SharedState, State},
    watch::Watch,
};
use mco_host::{CallLog, Host, Root, SimulatedSystem};
use mco_testkit::{PATIENCE, object_wait, objects};
use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

const PREFIX: &str = "machineconfiguration.openshift.io/";

/// One node of one pool, and its daemon.
pub(crate) struct Fleet {
    pub(crate) client: Client,
    pub(crate) nodes: Api<Node>,
    folder: tempfile::TempDir,
    pub(crate) power: watch::Sender<Power>,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    registry: Registry,
    pub(crate) glass: SharedState,
    pub(crate) commands: Option<RunCommand>,
    daemon: Option<(JoinHandle<()>, Shutdown)>,
}

/// The behaviour of the simulated drain controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drains {
    Answered,
    Ignored,
}

impl Fleet {
    /// Creates a pool whose config has these files, and a node in it that is not installed yet.
    pub(crate) async fn new(files: &[(&str, &str)], drains: Drains) -> Self {
        let client =
            Client::new(ApiServer::in_memory(Settings::default()).await.unwrap(), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in mco_api::crds() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = json!({"metadata": {"name": label::NAMESPACE}});
        let object = serde_json::from_value(object).unwrap();
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        let nodes: Api<Node> = Api::all(client.clone());
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
            "name": "worker-0", "labels": {"node-role.kubernetes.io/worker": ""}}});
        let object = serde_json::from_value(object).unwrap();
        nodes.create(&PostParams::default(), &object).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut registry = Registry::default();
        let fleet = Self {
            client,
            nodes,
            folder,
            power: watch::Sender::new(Power::Off),
            // Slow machines need time to write all status updates.
            limits: Limits { status_flush: PATIENCE, ..Limits::default() },
            metrics: Metrics::register(&mut registry),
            health: Health::default(),
            registry,
            glass: SharedState::default(),
            commands: None,
            daemon: None,
        };
        fleet.render("rendered-worker-1", files, &json!({})).await;
        let pools: Api<MachineConfigPool> = Api::all(fleet.client.clone());
        let mut pool = objects::pool("worker");
        "rendered-worker-1".clone_into(&mut pool.spec.configuration.rendered.name);
        pools.create(&PostParams::default(), &pool).await.unwrap();
        if drains == Drains::Answered {
            tokio::spawn(answer_drains(fleet.nodes.clone()));
        }
        fleet
    }

    /// Sets the drift policy of the pool.
    pub(crate) async fn set_drift_policy(&self, policy: &str) {
        let pools: Api<MachineConfigPool> = Api::all(self.client.clone());
        let patch =
            json!({"metadata": {"annotations": {(format!("{PREFIX}drift-policy")): policy}}});
        pools.patch("worker", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Waits until a file has this text.
    pub(crate) async fn wait_for_text(&self, path: &str, want: &str) {
        let root = Root::open(self.folder.path()).unwrap();
        let has_it = async {
            loop {
                // Watched before it is read, so that no change is missed in between.
                let mut watch = Watch::new(&root, [path].into_iter()).unwrap();
                if self.text(path).as_deref() == Some(want) {
                    return;
                }
                watch.changed().await.unwrap();
            }
        };
        let done = tokio::time::timeout(PATIENCE, has_it).await;
        assert!(done.is_ok(), "{path} never had {want:?}: {:?}", self.text(path));
    }

    /// Creates a config.
    pub(crate) async fn render(&self, name: &str, files: &[(&str, &str)], rest: &Value) {
        let file = |(path, text): &(&str, &str)| json!({"path": path, "contents": {"source": format!("data:,{text}")}});
        let files: Vec<Value> = files.iter().map(file).collect();
        self.render_files(name, &json!(files), rest).await;
    }

    /// Creates a rendered config with these files in the format of Ignition.
    pub(crate) async fn render_files(&self, name: &str, files: &Value, rest: &Value) {
        let mut spec = rest.clone();
        spec["config"]["ignition"] = json!({"version": "3.5.0"});
        spec["config"]["storage"]["files"] = files.clone();
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name}, "spec": spec
        });
        let configs: Api<MachineConfig> = Api::all(self.client.clone());
        let object = serde_json::from_str(&object.to_string()).unwrap();
        configs.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Starts the machine.
    pub(crate) fn start(&mut self) {
        let shutdown = Shutdown::new();
        let machine = Machine {
            node: "worker-0".parse().unwrap(),
            root: self.folder.path().to_owned(),
            boot_time: Duration::from_millis(1),
            power: self.power.clone(),
            first: FirstConfig::ApiServer,
        };
        let running = simulate(machine, self.around(), shutdown.clone());
        let handle = tokio::spawn(async move { running.await.unwrap() });
        self.daemon = Some((handle, shutdown));
    }

    /// Starts an installed machine, which is not booted again when it requests a reboot.
    pub(crate) async fn start_watched(&mut self) -> CallLog {
        let root = Root::create(self.folder.path()).unwrap();
        SimulatedSystem::write_base_files(&root).unwrap();
        let mut host =
            Host { root: root.try_clone().unwrap(), system: SimulatedSystem::open(&root).unwrap() };
        let configs: Api<MachineConfig> = Api::all(self.client.clone());
        let config = configs.get("rendered-worker-1").await.unwrap();
        mco_apply::first_boot::provision(&mut host, &config).unwrap();
        host.system.boot().unwrap();
        self.start_again()
    }

    /// Starts a machine that ran before, in its last state.
    pub(crate) fn start_again(&mut self) -> CallLog {
        let root = Root::open(self.folder.path()).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let journal = system.call_log();
        self.run(Host { root, system });
        journal
    }

    /// Starts a machine that existed before the cluster and never had a config.
    pub(crate) fn adopt(&mut self) {
        let root = Root::create(self.folder.path()).unwrap();
        SimulatedSystem::write_base_files(&root).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        self.run(Host { root, system });
    }

    fn run(&mut self, host: Host<SimulatedSystem>) {
        let (node, shutdown) = ("worker-0".parse().unwrap(), Shutdown::new());
        let running = mco_daemon::run(node, host, self.around(), shutdown.clone());
        let handle = tokio::spawn(async move {
            let _: mco_daemon::DaemonExit = running.await;
        });
        self.daemon = Some((handle, shutdown));
    }

    fn around(&self) -> DaemonContext {
        let reporter =
            Reporter::new(self.client.clone(), "machineconfigdaemon", NoteCount::default());
        DaemonContext {
            limits: self.limits,
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            state: self.glass.clone(),
            commands: self.commands.clone(),
            ..DaemonContext::new(self.client.clone(), reporter)
        }
    }

    /// Stops the daemon and waits for its end.
    pub(crate) async fn stop(&mut self) {
        let (handle, shutdown) = self.daemon.take().expect("it was started");
        shutdown.request();
        tokio::time::timeout(PATIENCE, handle).await.expect("it stops").unwrap();
    }

    /// Requests the daemon's shutdown, as SIGTERM does, without waiting.
    pub(crate) fn terminate(&self) {
        self.daemon.as_ref().expect("it was started").1.request();
    }

    /// Creates the node's MachineConfigNode, as the controller does.
    pub(crate) async fn create_machine_config_node(&self) {
        let node = self.nodes.get("worker-0").await.unwrap();
        let object = mco_core::machine_config_node::object(&node, Some("worker"));
        self.machine_config_nodes().create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) fn machine_config_nodes(&self) -> Api<MachineConfigNode> {
        Api::all(self.client.clone())
    }

    /// Returns the resource version of the MachineConfigNode.
    pub(crate) async fn machine_config_node_version(&self) -> Option<String> {
        self.machine_config_nodes().get("worker-0").await.unwrap().metadata.resource_version
    }

    /// Returns the reasons of all events about the node, in order.
    pub(crate) async fn events(&self) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), label::NAMESPACE);
        let mut found = events.list(&ListParams::default()).await.unwrap().items;
        found.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        found.into_iter().filter_map(|event| event.reason).collect()
    }

    /// Deletes all events.
    pub(crate) async fn forget_events(&self) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), label::NAMESPACE);
        let all = (DeleteParams::default(), ListParams::default());
        events.delete_collection(&all.0, &all.1).await.unwrap();
    }

    /// Waits for an event with this reason.
    pub(crate) async fn wait_for_event(&self, reason: &str) -> Event {
        let events: Api<Event> = Api::namespaced(self.client.clone(), label::NAMESPACE);
        let is_it = |event: &Event| event.reason.as_deref() == Some(reason);
        let Some(event) = object_wait::find(events, |event| Some(event).filter(is_it)).await else {
            panic!("no event {reason}; events: {:?}", self.events().await);
        };
        event
    }

    /// Returns the line of the metrics with this prefix.
    pub(crate) fn metric(&self, begin: &str) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let found = text.lines().find(|line| line.starts_with(begin)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("no {begin} in {text}"))
    }

    /// Sets the desired config of the node.
    pub(crate) async fn desire(&self, config: &str) {
        self.annotate("desiredConfig", config).await;
    }

    pub(crate) async fn annotate(&self, key: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}});
        let patch = Patch::Merge(patch);
        self.nodes.patch("worker-0", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the node's annotations match: `key=value` equals, `key~text` contains.
    pub(crate) async fn wait(&self, what: &str) -> BTreeMap<String, String> {
        let holds = |annotations: &BTreeMap<String, String>| {
            what.split(", ").all(|word| {
                let split = word.find(['=', '~']).expect("key=value or key~text");
                let (key, value) = word.split_at(split);
                let found = annotations.get(&format!("{PREFIX}{key}"));
                let found = found.map(String::as_str).unwrap_or_default();
                match value.strip_prefix('=') {
                    Some(value) => found == value,
                    None => found.contains(value.trim_start_matches('~')),
                }
            })
        };
        let mut last = BTreeMap::new();
        let seen = object_wait::find(self.nodes.clone(), |node| {
            last.clone_from(node.annotations());
            holds(&last).then_some(())
        });
        let seen = seen.await.is_some();
        assert!(seen, "not seen: {what}; last: {last:#?}");
        last
    }

    /// Waits until `holds` returns true for the daemon's state.
    pub(crate) async fn wait_for_state(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let seen = tokio::time::timeout(PATIENCE, self.glass.wait_for(holds)).await;
        assert!(seen.is_ok(), "not shown: {what}; last: {:#?}", self.glass.get());
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    pub(crate) fn boot_id(&self) -> String {
        let state = self.text("/var/lib/mco-simulated/state.json").expect("the machine was on");
        let state: Value = serde_json::from_str(&state).unwrap();
        state["bootId"].as_str().expect("a boot id").to_owned()
    }
}

/// Plays the drain controller: completes every request at once.
async fn answer_drains(nodes: Api<Node>) {
    let changes = watcher(nodes.clone(), watcher::Config::default()).default_backoff();
    let mut changes = std::pin::pin!(changes.applied_objects());
    while let Some(change) = changes.next().await {
        let Ok(node) = change else { continue };
        let (asked, done) = (format!("{PREFIX}desiredDrain"), format!("{PREFIX}lastAppliedDrain"));
        let annotations = node.annotations();
        if let Some(request) = annotations.get(&asked)
            && annotations.get(&done) != Some(request)
        {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {done: request}}}));
            nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.unwrap();
        }
    }
}
