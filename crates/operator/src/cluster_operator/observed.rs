//! Objects that only the status of the ClusterOperator depends on, cached without the parts that it
//! does not read.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::Client;
use mco_api::{ContainerRuntimeConfig, KubeletConfig, RawConfig};
use mco_cluster::{
    Api, Cache, Health, Object, Queue, Shutdown,
    cache::{Change, trim},
    watch::Config as WatchConfig,
};
use mco_core::status::operator::{Detected, Workload};
use tokio::task::JoinSet;

const CONTROLLER: &str = "machine-config-controller";
const SERVER: &str = "machine-config-server";

/// The observed objects. None of them has to exist, and the operator does not wait for them.
pub(crate) struct Observed {
    kubelet_configs: Arc<Cache<KubeletConfig>>,
    container_runtime_configs: Arc<Cache<ContainerRuntimeConfig>>,
    deployments: Arc<Cache<Deployment>>,
    daemon_sets: Arc<Cache<DaemonSet>>,
}

impl Observed {
    pub(crate) fn new() -> Self {
        Self {
            kubelet_configs: Arc::new(Cache::new(trim_kubelet_config)),
            container_runtime_configs: Arc::new(Cache::new(trim_container_runtime_config)),
            deployments: Arc::new(Cache::new(trim_deployment)),
            daemon_sets: Arc::new(Cache::new(trim_daemon_set)),
        }
    }

    /// Adds to `queue` when the status of the ClusterOperator may change.
    pub(crate) fn subscribe(&self, queue: &Arc<Queue<()>>) {
        enqueue_changes(&self.kubelet_configs, queue, Detected::in_kubelet_config);
        let of_engine = Detected::in_container_runtime_config;
        enqueue_changes(&self.container_runtime_configs, queue, of_engine);
        enqueue_changes(&self.deployments, queue, Workload::of_deployment);
        enqueue_changes(&self.daemon_sets, queue, Workload::of_daemon_set);
    }

    /// Starts the watches.
    pub(crate) fn watch(
        &self,
        client: &Client,
        health: &Health,
        shutdown: &Shutdown,
        tasks: &mut JoinSet<()>,
    ) {
        let all = || WatchConfig::default().health(health);
        let (cache, stop, config) = (self.kubelet_configs.clone(), shutdown.clone(), all());
        let api = Api::all(client.clone());
        tasks.spawn(async move { cache.run(api, config, &stop).await });
        let cache = self.container_runtime_configs.clone();
        let (api, stop, config) = (Api::all(client.clone()), shutdown.clone(), all());
        tasks.spawn(async move { cache.run(api, config, &stop).await });
        let (cache, stop) = (self.deployments.clone(), shutdown.clone());
        let api = Api::own(client.clone());
        let config = all().named(CONTROLLER);
        tasks.spawn(async move { cache.run(api, config, &stop).await });
        let (cache, stop) = (self.daemon_sets.clone(), shutdown.clone());
        let api = Api::own(client.clone());
        let config = all().named(SERVER);
        tasks.spawn(async move { cache.run(api, config, &stop).await });
    }

    /// Returns the settings that matter to support.
    pub(super) fn detected(&self) -> Vec<Detected> {
        let kubelets = self.kubelet_configs.list();
        let kubelets = kubelets.iter().filter_map(|config| Detected::in_kubelet_config(config));
        let engines = self.container_runtime_configs.list();
        let engines = engines.iter();
        let engines = engines.filter_map(|config| Detected::in_container_runtime_config(config));
        kubelets.chain(engines).collect()
    }

    /// Returns the pods of the controller's Deployment.
    pub(super) fn controller(&self) -> Option<Workload> {
        let found = self.deployments.list().into_iter().next()?;
        Workload::of_deployment(&found)
    }

    /// Returns the pods of the config server's DaemonSet.
    pub(super) fn server(&self) -> Option<Workload> {
        let found = self.daemon_sets.list().into_iter().next()?;
        Workload::of_daemon_set(&found)
    }
}

/// Adds to `queue` when the part that `read` returns changes.
fn enqueue_changes<K, T: PartialEq + 'static>(
    cache: &Cache<K>,
    queue: &Arc<Queue<()>>,
    read: fn(&K) -> Option<T>,
) where
    K: Object,
{
    let queue = queue.clone();
    cache.on_change(move |change: Change<'_, K>| {
        let part = |object: Option<&Arc<K>>| object.and_then(|object| read(object));
        if part(change.before) != part(change.after) {
            queue.add(());
        }
    });
}

fn trim_kubelet_config(config: &mut KubeletConfig) {
    trim::metadata(config);
    config.status = None;
    let detected = Detected::in_kubelet_config(config);
    // The text is a constant that can be parsed.
    let narrow = detected.and_then(|_| RawConfig::from_json(r#"{"failSwapOn":false}"#.into()).ok());
    config.spec.kubelet_config = narrow;
    config.spec.tls_security_profile = None;
}

fn trim_container_runtime_config(config: &mut ContainerRuntimeConfig) {
    trim::metadata(config);
    config.status = None;
}

fn trim_deployment(deployment: &mut Deployment) {
    trim::metadata(deployment);
    if let Some(spec) = &mut deployment.spec {
        spec.template.spec = None;
    }
}

fn trim_daemon_set(daemon_set: &mut DaemonSet) {
    trim::metadata(daemon_set);
    if let Some(spec) = &mut daemon_set.spec {
        spec.template.spec = None;
    }
}
