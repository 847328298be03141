//! A cluster of two workers in one process: operator, controller, server and simulated machines, whose
//! requests all suffer the faults of a plan. The test itself has a client without faults.

use std::{sync::Mutex, time::Duration};

use k8s_openapi::api::{
    core::v1::{Node, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{ClusterOperator, MachineConfig, MachineConfigNode, MachineConfigPool, label};
use mco_cluster::{Clock, Health, NoteCount, Reporter, Shutdown, client::RequestMetrics};
use mco_core::{drain::EvictionTiming, render::Build};
use mco_daemon::{
    DaemonContext,
    simulate::{FirstConfig, Machine, Power, simulate},
};
use mco_server::{ClusterSource, Source as _};
use mco_testkit::{
    nodes::{NodeSummaries, NodeSummary, Nodes},
    objects,
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::history;

/// The machines.
pub(crate) const WORKERS: [&str; 2] = ["worker-0", "worker-1"];

/// The config of the rollout.
pub(crate) const FIRST: &str = "50-first";

/// The config of a further rollout.
pub(crate) const SECOND: &str = "60-second";

/// Folder of the files that the configs put on every machine, each named after its config.
const FOLDER: &str = "/etc/chaos";

/// The mark that another process leaves on objects in mid-rollout.
const MARK: &str = "example.com/mark";

/// Time between two looks at the cluster.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Time in which all tasks end after the shutdown request.
const STOP_LIMIT: Duration = Duration::from_mins(1);

/// The running components.
pub(crate) struct Cluster {
    direct: Client,
    source: ClusterSource,
    nodes: Nodes,
    history: Mutex<Vec<NodeSummaries>>,
    registry: Registry,
    folder: tempfile::TempDir,
    shutdown: Shutdown,
    tasks: JoinSet<()>,
}

fn build() -> Build {
    Build { hash: "v1".to_owned(), version: "v1".to_owned() }
}

impl Cluster {
    /// Starts all components. `direct` is the test's client, `through` that of the components.
    pub(crate) async fn start(
        direct: Client,
        through: &Client,
        requests: &RequestMetrics,
        clock: Clock,
    ) -> Self {
        let (shutdown, mut tasks) = (Shutdown::new(), JoinSet::new());
        let (mut registry, health) = (Registry::default(), Health::default());
        requests.register(&mut registry);
        health.register(&mut registry);
        // Watches the store itself, so that no state in between is missed.
        let nodes = Nodes::watch(direct.clone());
        // The operator installs the kinds too; the daemons and the server start when they exist.
        mco_operator::install(&direct).await.unwrap();
        create_objects(&direct).await;
        let mut operator = mco_operator::Config::new(build(), "4.20.0");
        operator.root_ca = mco_operator::RootCa::Fixed("authority".to_owned());
        (operator.clock, operator.health) = (clock, health.clone());
        let run = mco_operator::run(operator, through.clone(), shutdown.clone());
        tasks.spawn(async move {
            run.await;
        });
        let mut controller = mco_controller::Config::new(build());
        (controller.clock, controller.health) = (clock, health.clone());
        controller.pace = EvictionTiming {
            attempt_timeout: Duration::from_secs(90),
            retry_interval: Duration::from_secs(1),
        };
        let run = mco_controller::run(controller, through.clone(), shutdown.clone());
        tasks.spawn(async move {
            run.await;
        });
        // The daemons sync every write to the disk; thousands of runs need none.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for name in WORKERS {
            let machine = Machine {
                node: name.parse().unwrap(),
                root: folder.path().join(name),
                boot_time: Duration::from_millis(10),
                power: watch::Sender::new(Power::Off),
                first: FirstConfig::ApiServer,
            };
            let reporter = Reporter::with_clock(
                through.clone(),
                "machineconfigdaemon",
                NoteCount::default(),
                clock,
            );
            let around = DaemonContext {
                health: health.clone(),
                clock,
                ..DaemonContext::new(through.clone(), reporter)
            };
            let run = simulate(machine, around, shutdown.clone());
            tasks.spawn(async move { run.await.unwrap() });
        }
        let source = ClusterSource::watch(through, None, &shutdown).await;
        let history = Mutex::default();
        Self { direct, source, nodes, history, registry, folder, shutdown, tasks }
    }

    /// Waits until the cluster is installed, applies a config, and waits until every part of the
    /// cluster has it. Returns the fault if one of the promises is broken.
    pub(crate) async fn roll_out(&self, bound: Duration) -> Result<(), String> {
        self.wait("the cluster to be installed", bound, &[]).await?;
        self.apply_config(FIRST).await;
        self.wait_for_cordon(bound).await?;
        self.mark().await;
        self.finish(bound).await
    }

    /// Creates a config with one file.
    pub(crate) async fn apply_config(&self, name: &str) {
        let configs: Api<MachineConfig> = Api::all(self.direct.clone());
        let config = objects::config(name, "worker", &format!("{FOLDER}/{name}"), "hello");
        configs.create(&PostParams::default(), &config).await.unwrap();
    }

    /// Deletes a config.
    pub(crate) async fn delete_config(&self, name: &str) {
        let configs: Api<MachineConfig> = Api::all(self.direct.clone());
        configs.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Creates a budget that allows no eviction.
    pub(crate) async fn forbid_evictions(&self) {
        let pods: Api<Pod> = Api::namespaced(self.direct.clone(), "default");
        for name in WORKERS {
            // A pod that is not running can always be evicted, regardless of its budget.
            let running = json!({"status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}]}});
            let (name, params) = (format!("app-{name}"), PatchParams::default());
            pods.patch_status(&name, &params, &Patch::Merge(running)).await.unwrap();
        }
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.direct.clone(), "default");
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "keep"},
            "spec": {"minAvailable": WORKERS.len(), "selector": {"matchLabels": {"app": "app"}}},
        }))
        .unwrap();
        budgets.create(&PostParams::default(), &budget).await.unwrap();
    }

    /// Waits until the first node is cordoned.
    pub(crate) async fn wait_for_cordon(&self, bound: Duration) -> Result<(), String> {
        let mut now = self.nodes.now();
        let cordoned = now.wait_for(|nodes| nodes.values().any(|node| node.cordoned));
        let seen = timeout(bound, cordoned).await.is_ok();
        if seen { Ok(()) } else { Err(format!("no node was cordoned: {:?}", self.nodes.now())) }
    }

    /// Waits until the rollout is complete, and checks all promises.
    pub(crate) async fn finish(&self, bound: Duration) -> Result<(), String> {
        self.wait("the rollout", bound, &[FIRST]).await?;
        self.check_marks().await?;
        let mut history = self.history.lock().unwrap();
        history.extend(self.nodes.history());
        history::check(&history)
    }

    /// Changes objects as another process would.
    pub(crate) async fn mark(&self) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {MARK: "yes"}}}));
        let params = PatchParams::default();
        let nodes: Api<Node> = Api::all(self.direct.clone());
        let reports: Api<MachineConfigNode> = Api::all(self.direct.clone());
        for name in WORKERS {
            nodes.patch(name, &params, &patch).await.unwrap();
            reports.patch(name, &params, &patch).await.unwrap();
        }
        let pools: Api<MachineConfigPool> = Api::all(self.direct.clone());
        pools.patch("worker", &params, &patch).await.unwrap();
    }

    async fn check_marks(&self) -> Result<(), String> {
        let nodes: Api<Node> = Api::all(self.direct.clone());
        let reports: Api<MachineConfigNode> = Api::all(self.direct.clone());
        let pools: Api<MachineConfigPool> = Api::all(self.direct.clone());
        let mut metas = vec![pools.get("worker").await.unwrap().metadata];
        for name in WORKERS {
            metas.push(nodes.get(name).await.unwrap().metadata);
            metas.push(reports.get(name).await.unwrap().metadata);
        }
        for meta in metas {
            let marks = meta.annotations.unwrap_or_default();
            if marks.get(MARK).map(String::as_str) != Some("yes") {
                return Err(format!("lost update: {:?} has no mark", meta.name));
            }
        }
        Ok(())
    }

    /// Waits until all parts of the cluster agree on a config that has these sources besides the
    /// base config.
    pub(crate) async fn wait(
        &self,
        what: &str,
        bound: Duration,
        sources: &[&str],
    ) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let Err(missing) = self.look(sources).await else { return Ok(()) };
            if start.elapsed() > bound {
                return Err(format!("timed out after {bound:?} waiting for {what}: {missing}"));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Returns what is missing for a complete rollout.
    async fn look(&self, sources: &[&str]) -> Result<(), String> {
        let failed = |error: kube::Error| error.to_string();
        let pools: Api<MachineConfigPool> = Api::all(self.direct.clone());
        let pool = pools.get("worker").await.map_err(failed)?;
        let has = |name: &&str| pool.spec.configuration.source.iter().any(|it| it.name == **name);
        if !sources.iter().all(has) {
            return Err("the pool's config has not all sources".to_owned());
        }
        let config = &pool.spec.configuration.rendered.name;
        let status = pool.status.clone().unwrap_or_default();
        let is = |kind: &str, word: &str| {
            status.conditions.iter().any(|c| c.kind == kind && c.status == word)
        };
        let complete = status.configuration.rendered.name == *config
            && (status.machine_count, status.updated_machine_count) == (2, 2)
            && status.ready_machine_count == 2
            && is("Updated", "True")
            && is("Updating", "False")
            && is("Degraded", "False");
        if !complete {
            return Err(format!("the pool's status is not complete: {status:?}"));
        }
        self.look_at_nodes(config, sources).await?;
        let served = self.source.inputs("worker").await.map_err(|error| error.to_string())?;
        if served.config.metadata.name.as_ref() != Some(config) {
            return Err(format!("the server has {:?}", served.config.metadata.name));
        }
        let operators: Api<ClusterOperator> = Api::all(self.direct.clone());
        let operator = operators.get(label::CLUSTER_OPERATOR).await.map_err(failed)?;
        let conditions = operator.status.unwrap_or_default().conditions;
        for (kind, word) in [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")]
        {
            if !conditions.iter().any(|c| c.kind == kind && c.status == word) {
                return Err(format!("the ClusterOperator is not {kind}={word}: {conditions:?}"));
            }
        }
        Ok(())
    }

    async fn look_at_nodes(&self, config: &str, sources: &[&str]) -> Result<(), String> {
        let failed = |error: kube::Error| error.to_string();
        let nodes: Api<Node> = Api::all(self.direct.clone());
        let reports: Api<MachineConfigNode> = Api::all(self.direct.clone());
        for name in WORKERS {
            let node = nodes.get(name).await.map_err(failed)?;
            let seen = NodeSummary::of(&node);
            let mut taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            // kube-apiserver adds its own when a node is created.
            taints.retain(|taint| !taint.key.starts_with("node.kubernetes.io/"));
            if !seen.is_done() || seen.cordoned || seen.current != config || !taints.is_empty() {
                return Err(format!("{name} is not done: {seen}, taints {taints:?}"));
            }
            let report = reports.get(name).await.map_err(failed)?;
            let status = report.status.unwrap_or_default();
            let updated = status.conditions.iter().find(|c| c.type_ == "Updated");
            let is_updated = report.spec.config_version.desired == config
                && updated.is_some_and(|c| c.status == "True");
            if !is_updated {
                return Err(format!("the MachineConfigNode {name} is not updated: {updated:?}"));
            }
            let folder = self.folder.path().join(name).join(FOLDER.trim_start_matches('/'));
            if let Some(source) = sources.iter().find(|source| !folder.join(source).exists()) {
                return Err(format!("{name} has not the file of {source}"));
            }
        }
        Ok(())
    }

    /// Returns the metrics of all components.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Stops all components; fails if one of them does not end.
    pub(crate) async fn stop(mut self) -> Result<(), String> {
        self.shutdown.request();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let ended = timeout(STOP_LIMIT, all).await;
        ended.map_err(|_| format!("{} components did not stop", self.tasks.len()))
    }
}

/// Creates the nodes as kubelets register them, and a pod on each for the drain to evict.
async fn create_objects(client: &Client) {
    let account: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    // The API server may have it already.
    drop(accounts.create(&PostParams::default(), &account).await);
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for name in WORKERS {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {
                "node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap();
        let status = json!({"status": node.status});
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = Patch::Merge(status);
        nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": format!("app-{name}"), "labels": {"app": "app"}, "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app",
                "uid": "00000000-0000-0000-0000-000000000000", "controller": true}]},
            "spec": {"nodeName": name, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "simulated"}]},
        }))
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
}
