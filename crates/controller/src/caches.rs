//! The objects that the controllers read, each kind watched once.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, Resource, runtime::watcher};
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfigSpec,
    label, name::RENDERED_PREFIX,
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
}

impl Caches {
    pub(crate) fn new() -> Self {
        Self {
            pools: Arc::new(Cache::new(trim::metadata)),
            configs: Arc::new(Cache::new(trim_config)),
            nodes: Arc::new(Cache::new(trim::node)),
            reports: Arc::new(Cache::new(trim::metadata)),
            cluster: Arc::new(Cache::new(trim::metadata)),
        }
    }

    /// Starts the watches.
    pub(crate) fn start(&self, client: &Client, shutdown: &Shutdown, tasks: &mut JoinSet<()>) {
        watch(&self.pools, client, shutdown, tasks);
        watch(&self.configs, client, shutdown, tasks);
        watch(&self.nodes, client, shutdown, tasks);
        watch(&self.reports, client, shutdown, tasks);
        watch(&self.cluster, client, shutdown, tasks);
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

/// The pool that a rendered config was made for.
pub(crate) fn owner(config: &MachineConfig) -> Option<&str> {
    let owners = config.metadata.owner_references.iter().flatten();
    let mut pools = owners.filter(|owner| owner.kind == "MachineConfigPool");
    pools.find(|owner| owner.controller == Some(true)).map(|owner| owner.name.as_str())
}
