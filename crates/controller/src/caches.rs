//! The objects that the controllers read, each kind watched once.

mod lean;

use std::{
    fmt::Debug,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, Resource, runtime::watcher};
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfigSpec,
    MachineConfiguration, MachineOSBuild, MachineOSConfig, OSImageStream, PinnedImageSet, label,
    name::RENDERED_PREFIX,
};
use mco_cluster::{Cache, CallError, Shutdown, cache::trim, error::Refused, report::chain};
use mco_core::rollout::scheduling::MastersSchedulable;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tracing::{debug, warn};

pub(crate) use self::lean::LeanNode;
use crate::scheduler::{self, Scheduler};

/// How many objects are listed at a time. A page is in memory as text and as objects at once, and
/// what a process once had of the system it hardly gives back; so the larger the objects, the fewer.
const PAGE: u32 = 100;
const PAGE_OF_NODES: u32 = 25;
const PAGE_OF_CONFIGS: u32 = 16;

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
    pub(crate) schedulers: Arc<Cache<Scheduler>>,
    pub(crate) orders: Arc<Cache<MachineOSConfig>>,
    pub(crate) builds: Arc<Cache<MachineOSBuild>>,
    /// Whether there was ever a Scheduler to go by.
    scheduler_seen: AtomicBool,
}

/// Pause before the server is asked again which kinds it has.
const PAUSE: Duration = Duration::from_secs(2);

impl Caches {
    pub(crate) fn new() -> Self {
        Self {
            pools: Arc::new(Cache::new(trim::metadata)),
            configs: Arc::new(Cache::new(trim_config)),
            nodes: Arc::new(Cache::new(|_| {})),
            reports: Arc::new(Cache::packed(trim::metadata)),
            cluster: Arc::new(Cache::new(trim::metadata)),
            settings: Arc::new(Cache::new(trim::metadata)),
            streams: Arc::new(Cache::new(trim::metadata)),
            pinned: Arc::new(Cache::new(trim_pinned)),
            schedulers: Arc::new(Cache::new(trim::metadata)),
            orders: Arc::new(Cache::new(trim::metadata)),
            builds: Arc::new(Cache::new(trim::metadata)),
            scheduler_seen: AtomicBool::new(false),
        }
    }

    /// Starts the watches.
    pub(crate) fn start(&self, client: &Client, shutdown: &Shutdown, tasks: &mut JoinSet<()>) {
        watch(&self.pools, PAGE, client, shutdown, tasks);
        watch(&self.configs, PAGE_OF_CONFIGS, client, shutdown, tasks);
        let nodes = (self.nodes.clone(), client.clone(), shutdown.clone());
        tasks.spawn(async move {
            let ((cache, client, shutdown), config) = (nodes, watcher::Config::default());
            let api = Api::<LeanNode>::all(client);
            cache.run_as(api, config.page_size(PAGE_OF_NODES), &shutdown).await;
        });
        watch(&self.reports, PAGE_OF_NODES, client, shutdown, tasks);
        watch(&self.cluster, PAGE, client, shutdown, tasks);
        watch(&self.orders, PAGE, client, shutdown, tasks);
        watch(&self.builds, PAGE, client, shutdown, tasks);
        watch(&self.settings, PAGE, client, shutdown, tasks);
        watch(&self.streams, PAGE, client, shutdown, tasks);
        watch(&self.pinned, PAGE, client, shutdown, tasks);
        let (schedulers, client, shutdown) =
            (self.schedulers.clone(), client.clone(), shutdown.clone());
        tasks.spawn(async move {
            let has_schedulers = tokio::select! {
                () = shutdown.requested() => false,
                found = has_schedulers(&client) => found,
            };
            if has_schedulers {
                follow(&schedulers, PAGE, client, &shutdown).await;
            }
        });
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
                self.orders.ready(),
                self.builds.ready(),
            )
        };
        tokio::select! {
            () = shutdown.requested() => false,
            _ = all => true,
        }
    }

    /// Waits for the kinds that a cluster need not have, until they or their absence are known: a
    /// setting that is heard of late is a config rendered wrongly, and nodes that reboot for it.
    pub(crate) async fn optional(&self, shutdown: &Shutdown) -> bool {
        let all = async {
            tokio::join!(
                self.settings.ready_or_absent(),
                self.streams.ready_or_absent(),
                self.pinned.ready_or_absent(),
            )
        };
        tokio::select! {
            () = shutdown.requested() => false,
            _ = all => true,
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

    /// What is to be built for a pool whose nodes run images of their own.
    pub(crate) fn order_of(&self, pool: &str) -> Option<Arc<MachineOSConfig>> {
        let orders = self.orders.list();
        orders.into_iter().find(|order| order.spec.machine_config_pool.name == pool)
    }

    /// Whether ordinary pods may run on the control plane; `None` where nobody says.
    pub(crate) fn masters_schedulable(&self) -> Option<MastersSchedulable> {
        match self.schedulers.get(scheduler::NAME) {
            Some(scheduler) => {
                self.scheduler_seen.store(true, Ordering::Relaxed);
                let takes_pods = scheduler.spec.masters_schedulable;
                let (yes, no) = (MastersSchedulable::Yes, MastersSchedulable::No);
                Some(if takes_pods { yes } else { no })
            }
            // Without the setting, what holds by default is restored.
            None if self.scheduler_seen.load(Ordering::Relaxed) => Some(MastersSchedulable::No),
            None => None,
        }
    }

    /// What the operator says of the cluster.
    pub(crate) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.cluster.get(label::CONTROLLER_CONFIG)
    }
}

fn watch<K>(
    cache: &Arc<Cache<K>>,
    page: u32,
    client: &Client,
    shutdown: &Shutdown,
    tasks: &mut JoinSet<()>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (cache, client, shutdown) = (cache.clone(), client.clone(), shutdown.clone());
    tasks.spawn(async move { follow(&cache, page, client, &shutdown).await });
}

async fn follow<K>(cache: &Cache<K>, page: u32, client: Client, shutdown: &Shutdown)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let config = watcher::Config::default().page_size(page);
    cache.run(Api::all(client), config, shutdown).await;
}

/// Whether this cluster has OpenShift's kind `Scheduler`. Asked until there is an answer, and then no
/// more: clusters do not become OpenShift's while they run.
async fn has_schedulers(client: &Client) -> bool {
    loop {
        let found = client.list_api_group_resources("config.openshift.io/v1").await;
        match found.map_err(CallError::from) {
            Ok(found) => {
                return found.resources.iter().any(|resource| resource.kind == "Scheduler");
            }
            Err(error)
                if matches!(error.refused(), Some(Refused::NotFound | Refused::Other(403))) =>
            {
                debug!(
                    error = chain(&error),
                    "This cluster does not say whether masters take pods"
                );
                return false;
            }
            Err(error) => warn!(error = chain(&error), "Cannot ask whether masters take pods"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Rendered configs are large, many, and only asked for by name and image.
fn trim_config(config: &mut MachineConfig) {
    trim::metadata(config);
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if name.starts_with(RENDERED_PREFIX) && owner(config).is_some() {
        let os_image_url = mem::take(&mut config.spec.os_image_url);
        config.spec = MachineConfigSpec { os_image_url, ..MachineConfigSpec::default() };
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
