//! A cluster with running controllers and nodes whose daemons the test plays.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::{
    core::v1::{Node, Secret},
    events::v1::Event,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use mco_api::{
    MachineConfigNode, MachineConfigPool, annotation, label,
    machine_config_pool::MachineConfigPoolStatus,
};
use mco_cluster::{Shutdown, lease::LeadershipEnd};
use mco_controller::{Config, Delays};
use mco_core::render::Build;
pub(crate) use mco_testkit::objects::worker;
use mco_testkit::{PATIENCE, object_wait, objects};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::server::Server;

/// The role label of nodes of the pool `infra`.
pub(crate) const INFRA: &str = "node-role.kubernetes.io/infra";

/// A cluster with running controllers.
pub(crate) struct Fleet {
    pub(crate) client: Client,
    pub(crate) config: Config,
    pub(crate) server: Server,
    shutdown: Shutdown,
    running: JoinHandle<LeadershipEnd>,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The controllers of a failed test must not write into the next test's cluster.
        self.running.abort();
    }
}

impl Fleet {
    /// Creates a cluster with the worker pool, `workers` nodes named `n0`, `n1` … and one config,
    /// rolled out.
    pub(crate) async fn on(server: Server, workers: usize) -> Self {
        Self::with(server, workers, |_| {}).await
    }

    /// Creates the cluster on the embedded API server.
    pub(crate) async fn start(workers: usize) -> Self {
        Self::on(Server::embedded().await, workers).await
    }

    /// Creates the cluster with changed settings of the controllers.
    pub(crate) async fn with(
        server: Server,
        workers: usize,
        set: impl FnOnce(&mut Config),
    ) -> Self {
        let client = server.client().await;
        objects::create_controller_config(&client, VERSION).await.unwrap();
        // The controllers leave a base config alone that is there before them.
        let base = objects::config("00-worker", "worker", "/etc/base", "hello");
        Api::all(client.clone()).create(&PostParams::default(), &base).await.unwrap();
        let shutdown = Shutdown::new();
        let mut config = config();
        set(&mut config);
        let run = mco_controller::run(config.clone(), client.clone(), shutdown.clone());
        let running = tokio::spawn(run);
        let fleet = Self { client, config, server, shutdown, running };
        fleet.create(&objects::pool("worker")).await;
        let base = fleet.rendered().await;
        for number in 0..workers {
            fleet.create(&worker(&format!("n{number}"), &base)).await;
        }
        fleet
            .wait_for_pool("worker Updated with all nodes", |status| {
                status.machine_count == i32::try_from(workers).unwrap()
                    && is(status, "Updated", "True")
                    && is(status, "RenderDegraded", "False")
                    && is(status, "PinnedImageSetsDegraded", "False")
            })
            .await;
        let secrets = Api::<Secret>::namespaced(fleet.client.clone(), label::NAMESPACE);
        awaited(secrets, label::SERVER_TLS, "is there", |_| true).await;
        fleet
    }

    pub(crate) fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn create<K>(&self, object: &K)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        self.all().create(&PostParams::default(), object).await.unwrap();
    }

    pub(crate) async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(patch);
        self.all::<K>().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Patches the status of an object on behalf of another component.
    pub(crate) async fn patch_status<K>(&self, name: &str, status: Value)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(json!({"status": status}));
        self.all::<K>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Creates a config of the role `worker` with one file at `path`.
    pub(crate) async fn apply_config(&self, name: &str, path: &str) {
        self.create(&objects::config(name, "worker", path, "hello")).await;
    }

    /// Waits until the worker pool has a config; returns its name.
    pub(crate) async fn rendered(&self) -> String {
        let pool = self.wait::<MachineConfigPool>("worker", "has a config", |pool| {
            !pool.spec.configuration.rendered.name.is_empty()
        });
        pool.await.spec.configuration.rendered.name
    }

    /// Waits until the worker pool has another config than `before`; returns its name.
    pub(crate) async fn rendered_anew(&self, before: &str) -> String {
        let pool = self.wait::<MachineConfigPool>("worker", "has a new config", |pool| {
            let name = &pool.spec.configuration.rendered.name;
            !name.is_empty() && name != before
        });
        pool.await.spec.configuration.rendered.name
    }

    pub(crate) async fn wait_for_pool(
        &self,
        what: &str,
        holds: impl Fn(&MachineConfigPoolStatus) -> bool,
    ) -> MachineConfigPoolStatus {
        let holds = |pool: &MachineConfigPool| pool.status.as_ref().is_some_and(&holds);
        let pool = self.wait::<MachineConfigPool>("worker", what, holds).await;
        pool.status.unwrap()
    }

    /// Waits until all nodes of the worker pool run `config`.
    pub(crate) async fn wait_for_update(&self, config: &str) -> MachineConfigPoolStatus {
        self.wait_for_pool("all are updated", |status| {
            is(status, "Updated", "True") && status.configuration.rendered.name == config
        })
        .await
    }

    /// Waits until the node's MachineConfigNode has `config` as desired config.
    pub(crate) async fn wait_for_machine_config_node(&self, node: &str, config: &str) {
        self.wait::<MachineConfigNode>(node, "has the desired config", |report| {
            report.spec.config_version.desired == config
        })
        .await;
    }

    /// Waits until `holds` is true for the object.
    pub(crate) async fn wait<K>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        awaited(self.all::<K>(), name, what, holds).await
    }

    /// Waits for the one node whose desired config is `config` and that does not run it yet.
    pub(crate) async fn wait_for_start(&self, config: &str) -> String {
        let mut under_way = self.wait_for_starts(config).await;
        assert_eq!(under_way.len(), 1, "{under_way:?} at once");
        under_way.remove(0)
    }

    /// Waits until nodes have `config` as desired config and do not run it yet; returns all of
    /// them.
    pub(crate) async fn wait_for_starts(&self, config: &str) -> Vec<String> {
        let changes = watcher(self.all::<Node>(), watcher::Config::default());
        let mut changes = pin!(changes.default_backoff());
        let looking = async {
            while changes.next().await.is_some() {
                let under_way = self.under_way(config).await;
                if !under_way.is_empty() {
                    return under_way;
                }
            }
            unreachable!("a watch does not end by itself")
        };
        tokio::time::timeout(PATIENCE, looking).await.expect("a node starts")
    }

    /// Returns the nodes whose desired config is `config` and that do not run it yet.
    pub(crate) async fn under_way(&self, config: &str) -> Vec<String> {
        let nodes = self.all::<Node>().list(&ListParams::default()).await.unwrap();
        let value =
            |node: &Node, key: &str| node.annotations().get(key).cloned().unwrap_or_default();
        let busy = |node: &&Node| {
            value(node, annotation::DESIRED_CONFIG.name()) == config
                && value(node, annotation::CURRENT_CONFIG.name()) != config
        };
        nodes.items.iter().filter(busy).map(ResourceExt::name_any).collect()
    }

    /// Writes the annotations of the node's daemon.
    pub(crate) async fn write_daemon_state(
        &self,
        node: &str,
        state: &str,
        current: &str,
        reason: &str,
    ) {
        let annotations = json!({
            annotation::STATE.name(): state,
            annotation::CURRENT_CONFIG.name(): current,
            annotation::REASON.name(): reason,
        });
        self.patch::<Node>(node, json!({"metadata": {"annotations": annotations}})).await;
    }

    /// Stops the controllers; the cluster stays as it is.
    pub(crate) async fn pause(&mut self) {
        self.shutdown.request();
        let ended = tokio::time::timeout(PATIENCE, &mut self.running).await;
        assert_eq!(ended.expect("the controllers stop").unwrap(), LeadershipEnd::Released);
    }

    /// Starts controllers without any state.
    pub(crate) fn resume(&mut self) {
        self.shutdown = Shutdown::new();
        let (config, client) = (self.config.clone(), self.client.clone());
        self.running = tokio::spawn(mco_controller::run(config, client, self.shutdown.clone()));
    }

    /// Waits for the first event with this reason; returns its message.
    pub(crate) async fn event(&self, reason: &str) -> String {
        self.event_that(reason, |event| event.reason.as_deref() == Some(reason)).await
    }

    /// Waits for the first event for which `holds` is true; returns its message.
    pub(crate) async fn event_that(&self, what: &str, holds: impl Fn(&Event) -> bool) -> String {
        let said = |event: Event| holds(&event).then(|| event.note.unwrap_or_default());
        let found = object_wait::find(Api::<Event>::all(self.client.clone()), said).await;
        found.unwrap_or_else(|| panic!("no event: {what}"))
    }

    /// Waits until there is no object of this name.
    pub(crate) async fn gone<K>(&self, name: &str)
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        object_wait::wait_until(self.all::<K>(), name, "its end", |object| object.is_none())
            .await
            .unwrap();
    }

    /// Stops the controllers; fails if they do not stop.
    pub(crate) async fn stop(mut self) {
        self.pause().await;
    }

    /// Creates the custom pool `infra`; returns its first config.
    pub(crate) async fn infra_pool(&self) -> String {
        let infra = json!({
            "metadata": {"name": "infra"},
            "spec": {
                "machineConfigSelector": {"matchExpressions": [
                    {"key": label::ROLE, "operator": "In", "values": ["worker", "infra"]}]},
                "nodeSelector": {"matchLabels": {INFRA: ""}},
            },
        });
        self.create::<MachineConfigPool>(&serde_json::from_value(infra).unwrap()).await;
        let pool = self.wait::<MachineConfigPool>("infra", "has a config", |pool| {
            !pool.spec.configuration.rendered.name.is_empty()
        });
        pool.await.spec.configuration.rendered.name
    }
}

/// Waits until `holds` is true for the object.
pub(crate) async fn awaited<K>(api: Api<K>, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let found = object_wait::wait_until(api, name, what, |object| object.is_some_and(&holds)).await;
    found.unwrap().unwrap()
}

pub(crate) fn is(status: &MachineConfigPoolStatus, kind: &str, wanted: &str) -> bool {
    status.conditions.iter().any(|c| c.kind == kind && c.status == wanted)
}

/// Version of the controllers' build.
pub(crate) const VERSION: &str = "v1";

fn build() -> Build {
    Build { version: VERSION.to_owned(), hash: "abc".to_owned() }
}

/// Returns settings of controllers with short delays.
pub(crate) fn config() -> Config {
    let mut config = Config::new(build());
    config.delays = Delays {
        render: Duration::from_millis(20),
        node: Duration::from_millis(5),
        drain: Duration::ZERO,
        node_status: Duration::from_millis(5),
        waiting_status: Duration::ZERO,
        status: Duration::from_millis(5),
        prune: Duration::from_millis(5),
    };
    config.pace.retry_interval = Duration::from_millis(20);
    config
}
