//! Caches of the objects that the controllers read. Each kind is watched once.

mod lean;

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Client;
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigNode,
    MachineConfigPool, MachineConfigSpec, MachineConfiguration, MachineOSBuild, MachineOSConfig,
    OSImageStream, PinnedImageSet, join_token, label, name::RENDERED_PREFIX,
};
use mco_cluster::{
    Api, Cache, Health, Object, Shutdown,
    cache::{Decoding, trim},
    watch::{self, Unreadable},
};
use mco_core::rollout::scheduling::MastersSchedulable;
use tokio::task::JoinSet;

pub(crate) use self::lean::LeanNode;
use crate::{
    cluster_settings::SettingsCaches,
    scheduler::{self, Scheduler},
};

/// Page size of lists. A page is in memory as text and as objects at once, and a process hardly
/// returns memory to the system; so the larger the objects, the smaller the page.
const PAGE_SIZE: u32 = 100;
const NODE_PAGE_SIZE: u32 = 25;
const CONFIG_PAGE_SIZE: u32 = 16;

/// One cache per kind.
#[derive(Debug)]
pub(crate) struct Caches {
    pub(crate) pools: Arc<Cache<MachineConfigPool>>,
    pub(crate) configs: Arc<Cache<MachineConfig>>,
    pub(crate) nodes: Arc<Cache<Node>>,
    pub(crate) machine_config_nodes: Arc<Cache<MachineConfigNode>>,
    pub(crate) controller_configs: Arc<Cache<ControllerConfig>>,
    pub(crate) kubelet_configs: Arc<Cache<KubeletConfig>>,
    pub(crate) machine_configurations: Arc<Cache<MachineConfiguration>>,
    pub(crate) os_image_streams: Arc<Cache<OSImageStream>>,
    pub(crate) pinned_image_sets: Arc<Cache<PinnedImageSet>>,
    pub(crate) container_runtime_configs: Arc<Cache<ContainerRuntimeConfig>>,
    pub(crate) schedulers: Arc<Cache<Scheduler>>,
    /// Settings of the whole cluster.
    pub(crate) settings: Arc<SettingsCaches>,
    pub(crate) machine_os_configs: Arc<Cache<MachineOSConfig>>,
    pub(crate) machine_os_builds: Arc<Cache<MachineOSBuild>>,
    /// Join tokens with the machines that used them.
    pub(crate) join_tokens: Arc<Cache<Secret>>,
    /// True once a Scheduler object was seen.
    scheduler_seen: AtomicBool,
}

impl Caches {
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            pools: Arc::new(Cache::new(trim::metadata)),
            configs: Arc::new(Cache::new(trim_config)),
            nodes: Arc::new(Cache::new(|_| {})),
            machine_config_nodes: Arc::new(Cache::compressed(trim::metadata)),
            controller_configs: Arc::new(Cache::new(trim::metadata)),
            kubelet_configs: Arc::new(Cache::new(trim::metadata)),
            machine_configurations: Arc::new(Cache::new(trim::metadata)),
            os_image_streams: Arc::new(Cache::new(trim::metadata)),
            pinned_image_sets: Arc::new(Cache::new(trim_pinned)),
            container_runtime_configs: Arc::new(Cache::new(trim::metadata)),
            schedulers: Arc::new(Cache::new(trim::metadata)),
            settings: Arc::new(SettingsCaches::new(client)),
            machine_os_configs: Arc::new(Cache::new(trim::metadata)),
            machine_os_builds: Arc::new(Cache::new(trim::metadata)),
            join_tokens: Arc::new(Cache::new(trim::metadata)),
            scheduler_seen: AtomicBool::new(false),
        }
    }

    /// Starts the watches.
    pub(crate) fn start(
        &self,
        client: &Client,
        health: &Health,
        shutdown: &Shutdown,
        tasks: &mut JoinSet<()>,
    ) {
        let with_page = |size: u32| watch::Config::default().health(health).page_size(size);
        let (all, nodes) = (with_page(PAGE_SIZE), with_page(NODE_PAGE_SIZE));
        let (configs, optional) = (with_page(CONFIG_PAGE_SIZE), all.clone().optional());
        spawn_watch(&self.pools, &all, client, shutdown, tasks);
        spawn_watch(&self.configs, &configs, client, shutdown, tasks);
        let lean = (self.nodes.clone(), client.clone(), nodes.clone(), shutdown.clone());
        tasks.spawn(async move {
            let (cache, client, config, shutdown) = lean;
            cache.run_as(Api::<LeanNode>::all(client), config, &shutdown).await;
        });
        spawn_watch(&self.machine_config_nodes, &nodes, client, shutdown, tasks);
        spawn_watch(&self.controller_configs, &all, client, shutdown, tasks);
        spawn_watch(&self.kubelet_configs, &all, client, shutdown, tasks);
        spawn_watch(&self.machine_os_configs, &all, client, shutdown, tasks);
        spawn_watch(&self.machine_os_builds, &all, client, shutdown, tasks);
        spawn_watch(&self.machine_configurations, &optional, client, shutdown, tasks);
        spawn_watch(&self.os_image_streams, &optional, client, shutdown, tasks);
        spawn_watch(&self.pinned_image_sets, &optional, client, shutdown, tasks);
        spawn_watch(&self.container_runtime_configs, &optional, client, shutdown, tasks);
        let tokens = optional.clone().fields(&format!("type={}", join_token::SECRET_TYPE));
        let api = Api::namespaced(client.clone(), join_token::NAMESPACE);
        let (cache, stop) = (self.join_tokens.clone(), shutdown.clone());
        tasks.spawn(async move { cache.run(api, tokens, &stop).await });
        let (settings, schedulers) = (self.settings.clone(), self.schedulers.clone());
        let (client, health, shutdown) = (client.clone(), health.clone(), shutdown.clone());
        tasks.spawn(async move { settings.run(client, schedulers, &health, &shutdown).await });
    }

    /// Waits until all caches that decisions need are complete, so that none is based on partial
    /// data.
    ///
    /// Returns false if shutdown was requested before.
    pub(crate) async fn ready(&self, shutdown: &Shutdown) -> bool {
        let all = async {
            tokio::join!(
                self.pools.ready(),
                self.configs.ready(),
                self.nodes.ready(),
                self.machine_config_nodes.ready(),
                self.controller_configs.ready(),
                self.kubelet_configs.ready(),
                self.machine_os_configs.ready(),
                self.machine_os_builds.ready(),
            )
        };
        tokio::select! {
            () = shutdown.requested() => false,
            _ = all => true,
        }
    }

    /// Waits until the kinds that a cluster need not have are cached or known to be absent. A
    /// setting that arrived late would cause a wrong rendered config, and reboots for it.
    pub(crate) async fn optional_ready(&self, shutdown: &Shutdown) -> bool {
        let all = async {
            tokio::join!(
                self.machine_configurations.ready_or_absent(),
                self.os_image_streams.ready_or_absent(),
                self.pinned_image_sets.ready_or_absent(),
                self.container_runtime_configs.ready_or_absent(),
            )
        };
        tokio::select! {
            () = shutdown.requested() => false,
            _ = all => true,
        }
    }

    /// Returns an object that cannot be decoded and without which no node may start an update: a pool
    /// may have nodes that would otherwise belong to another, and a MachineOSConfig decides how the
    /// nodes of its pool are updated.
    pub(crate) fn undecodable(&self) -> Option<Arc<Unreadable>> {
        let pools = self.pools.unreadable();
        let os_configs = self.machine_os_configs.unreadable();
        let builds = self.machine_os_builds.unreadable();
        pools.into_iter().chain(os_configs).chain(builds).next()
    }

    /// Calls `listener` when an object of any kind cannot be decoded, and when that is over.
    pub(crate) fn on_unreadable(
        &self,
        listener: impl Fn(Decoding<'_>) + Clone + Send + Sync + 'static,
    ) {
        self.pools.on_unreadable(listener.clone());
        self.configs.on_unreadable(listener.clone());
        self.nodes.on_unreadable(listener.clone());
        self.machine_config_nodes.on_unreadable(listener.clone());
        self.controller_configs.on_unreadable(listener.clone());
        self.kubelet_configs.on_unreadable(listener.clone());
        self.machine_configurations.on_unreadable(listener.clone());
        self.os_image_streams.on_unreadable(listener.clone());
        self.pinned_image_sets.on_unreadable(listener.clone());
        self.container_runtime_configs.on_unreadable(listener.clone());
        self.schedulers.on_unreadable(listener.clone());
        self.machine_os_configs.on_unreadable(listener.clone());
        self.machine_os_builds.on_unreadable(listener);
    }

    /// Returns the MachineConfiguration of the cluster.
    pub(crate) fn machine_configuration(&self) -> Option<Arc<MachineConfiguration>> {
        self.machine_configurations.get(label::CLUSTER)
    }

    /// Returns the OSImageStream of the cluster, if the cluster offers several streams.
    pub(crate) fn os_image_stream(&self) -> Option<Arc<OSImageStream>> {
        self.os_image_streams.get(label::CLUSTER).filter(|streams| streams.status.is_some())
    }

    /// Returns the MachineOSConfig of a pool whose nodes run images built in the cluster.
    pub(crate) fn machine_os_config_of(&self, pool: &str) -> Option<Arc<MachineOSConfig>> {
        let configs = self.machine_os_configs.list();
        configs.into_iter().find(|config| config.spec.machine_config_pool.name == pool)
    }

    /// Returns the Scheduler's setting for pods on the control plane; `None` if the cluster has no
    /// Scheduler.
    pub(crate) fn masters_schedulable(&self) -> Option<MastersSchedulable> {
        match self.schedulers.get(scheduler::NAME) {
            Some(scheduler) => {
                self.scheduler_seen.store(true, Ordering::Relaxed);
                let takes_pods = scheduler.spec.masters_schedulable;
                let (yes, no) = (MastersSchedulable::Yes, MastersSchedulable::No);
                Some(if takes_pods { yes } else { no })
            }
            // After the Scheduler was deleted, its default applies again.
            None if self.scheduler_seen.load(Ordering::Relaxed) => Some(MastersSchedulable::No),
            None => None,
        }
    }

    /// Returns the ControllerConfig of the cluster.
    pub(crate) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(label::CONTROLLER_CONFIG)
    }
}

fn spawn_watch<K: Object>(
    cache: &Arc<Cache<K>>,
    config: &watch::Config,
    client: &Client,
    shutdown: &Shutdown,
    tasks: &mut JoinSet<()>,
) {
    let (cache, api, shutdown) = (cache.clone(), Api::all(client.clone()), shutdown.clone());
    let config = config.clone();
    tasks.spawn(async move { cache.run(api, config, &shutdown).await });
}

/// Drops the contents of rendered configs: they are large, many, and only read by name and OS
/// image.
fn trim_config(config: &mut MachineConfig) {
    trim::metadata(config);
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if name.starts_with(RENDERED_PREFIX) && owner(config).is_some() {
        let os_image_url = mem::take(&mut config.spec.os_image_url);
        config.spec = MachineConfigSpec { os_image_url, ..MachineConfigSpec::default() };
    }
}

/// Drops the images of a PinnedImageSet, which the controller does not read.
fn trim_pinned(set: &mut PinnedImageSet) {
    trim::metadata(set);
    set.spec.pinned_images = Vec::new();
}

/// Returns the name of the pool that a rendered config was generated for.
pub(crate) fn owner(config: &MachineConfig) -> Option<&str> {
    let owners = config.metadata.owner_references.iter().flatten();
    let mut pools = owners.filter(|owner| owner.kind == "MachineConfigPool");
    pools.find(|owner| owner.controller == Some(true)).map(|owner| owner.name.as_str())
}
