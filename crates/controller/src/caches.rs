//! The objects that the controllers read, each kind watched once.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, Resource, runtime::watcher};
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfigSpec,
    MachineConfiguration, OSImageStream, PinnedImageSet, label, name::RENDERED_PREFIX,
};
use mco_cluster::{Cache, Shutdown, cache::trim};
use mco_core::membership::Pools;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

/// One cache per kind.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) pools: Arc<Cache<MachineConfigPool>>,
    pub(crate) configs: Arc<Cache<MachineConfig>>,
    pub(crate) nodes: Arc<Cache<Node>>,
    pub(crate) reports: Arc<Cache<MachineConfigNode>>,
    pub(crate) cluster: Arc<Cache<ControllerConfig>>,
    pub(crate) settings: Arc<Cache<MachineConfiguration>>,
    pub(crate) streams: Arc<Cache<OSImageStream>>,
    pub(crate) pinned: Arc<Cache<PinnedImageSet>>,
}

/// How long to wait for kinds that a cluster need not have.
const PATIENCE: Duration = Duration::from_secs(2);

impl Caches {
    pub(crate) fn new() -> Self {
        Self {
            pools: Arc::new(Cache::new(trim::metadata)),
            configs: Arc::new(Cache::new(trim_config)),
            nodes: Arc::new(Cache::new(trim::node)),
            reports: Arc::new(Cache::new(trim::metadata)),
            cluster: Arc::new(Cache::new(trim::metadata)),
            settings: Arc::new(Cache::new(trim::metadata)),
            streams: Arc::new(Cache::new(trim::metadata)),
            pinned: Arc::new(Cache::new(trim_pinned)),
        }
    }

    /// Starts the watches.
    pub(crate) fn start(&self, client: &Client, shutdown: &Shutdown, tasks: &mut JoinSet<()>) {
        watch(&self.pools, client, shutdown, tasks);
        watch(&self.configs, client, shutdown, tasks);
        watch(&self.nodes, client, shutdown, tasks);
        watch(&self.reports, client, shutdown, tasks);
        watch(&self.cluster, client, shutdown, tasks);
        watch(&self.settings, client, shutdown, tasks);
        watch(&self.streams, client, shutdown, tasks);
        watch(&self.pinned, client, shutdown, tasks);
    }

    /// Waits until all that a decision needs is there, so that none is made on half a picture.
    ///
    /// Says whether it is; otherwise the process stops before.
    pub(crate) async fn ready(&self, shutdown: &Shutdown) -> bool {
        let all = async {
            tokio::join!(
                self.pools.ready(),
                self.configs.ready(),
                self.nodes.ready(),
                self.reports.ready(),
                self.cluster.ready(),
            )
        };
        tokio::select! {
            () = shutdown.requested() => false,
            _ = all => true,
        }
    }

    /// Waits for the kinds that a cluster need not have, but not for ever: one that appears later is
    /// told of like any change.
    pub(crate) async fn optional(&self, shutdown: &Shutdown) -> bool {
        let all = async {
            tokio::join!(self.settings.ready(), self.streams.ready(), self.pinned.ready())
        };
        tokio::select! {
            () = shutdown.requested() => false,
            _ = all => true,
            () = tokio::time::sleep(PATIENCE) => true,
        }
    }

    /// What people say about the operator itself.
    pub(crate) fn settings(&self) -> Option<Arc<MachineConfiguration>> {
        self.settings.get(label::CLUSTER)
    }

    /// The streams of OS images, where the cluster has several.
    pub(crate) fn streams(&self) -> Option<Arc<OSImageStream>> {
        self.streams.get(label::CLUSTER).filter(|streams| streams.status.is_some())
    }

    /// What the operator says of the cluster.
    pub(crate) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.cluster.get(label::CONTROLLER_CONFIG)
    }
}

/// The pools' claims on nodes.
pub(crate) fn membership(pools: &Cache<MachineConfigPool>) -> Pools {
    let pools = pools.list();
    Pools::new(pools.iter().map(|pool| &**pool))
}

fn watch<K>(cache: &Arc<Cache<K>>, client: &Client, shutdown: &Shutdown, tasks: &mut JoinSet<()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (cache, api) = (cache.clone(), Api::all(client.clone()));
    let shutdown = shutdown.clone();
    tasks.spawn(async move { cache.run(api, watcher::Config::default(), &shutdown).await });
}

/// Rendered configs are large, many, and only asked for by name.
fn trim_config(config: &mut MachineConfig) {
    trim::metadata(config);
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if name.starts_with(RENDERED_PREFIX) && owner(config).is_some() {
        config.spec = MachineConfigSpec::default();
    }
}

/// Which images a set names does not matter here.
fn trim_pinned(set: &mut PinnedImageSet) {
    trim::metadata(set);
    set.spec.pinned_images = Vec::new();
}

/// The pool that a rendered config was made for.
pub(crate) fn owner(config: &MachineConfig) -> Option<&str> {
    let owners = config.metadata.owner_references.iter().flatten();
    let mut pools = owners.filter(|owner| owner.kind == "MachineConfigPool");
    pools.find(|owner| owner.controller == Some(true)).map(|owner| owner.name.as_str())
}
