//! Facts about the platform: objects of OpenShift, which a cluster has or not.

use std::sync::Arc;

use kube::Client;
use mco_api::{
    InternalReleaseImage,
    annotation::Topology,
    label,
    openshift::{self, ClusterVersion, FeatureGate, Infrastructure},
};
use mco_cluster::{
    Api, Cache, CallError, Health, Object, Queue, Shutdown, cache::trim,
    watch::Config as WatchConfig,
};
use mco_core::machine_configuration::{Facts, Provisioning, is_enabled};
use tokio::task::JoinSet;

use crate::manifests::Condition;

/// Name of the only `ClusterVersion`.
const VERSION: &str = "version";

/// The objects that tell the platform. None of them has to exist.
pub(crate) struct Platform {
    infrastructures: Arc<Cache<Infrastructure>>,
    versions: Arc<Cache<ClusterVersion>>,
    gates: Arc<Cache<FeatureGate>>,
    releases: Arc<Cache<InternalReleaseImage>>,
}

impl Platform {
    pub(crate) fn new() -> Self {
        Self {
            infrastructures: Arc::new(Cache::new(trim::metadata)),
            versions: Arc::new(Cache::new(trim::metadata)),
            gates: Arc::new(Cache::new(trim::metadata)),
            releases: Arc::new(Cache::new(trim_release)),
        }
    }

    /// Returns the cache of the Infrastructure.
    pub(crate) fn infrastructures(&self) -> Arc<Cache<Infrastructure>> {
        self.infrastructures.clone()
    }

    /// Adds to `queue` when an object changes.
    pub(crate) fn subscribe(&self, queue: &Arc<Queue<()>>) {
        enqueue(&self.infrastructures, queue);
        enqueue(&self.versions, queue);
        enqueue(&self.gates, queue);
        enqueue(&self.releases, queue);
    }

    /// Starts the watches.
    pub(crate) fn watch(
        &self,
        client: &Client,
        health: &Health,
        stop: &Shutdown,
        tasks: &mut JoinSet<()>,
    ) {
        let named = |name: &str| WatchConfig::default().health(health).optional().named(name);
        spawn(&self.infrastructures, client, named(label::CLUSTER), stop, tasks);
        spawn(&self.versions, client, named(VERSION), stop, tasks);
        spawn(&self.gates, client, named(label::CLUSTER), stop, tasks);
        spawn(&self.releases, client, named(label::CLUSTER), stop, tasks);
    }

    /// Waits until all objects were listed, or the API server does not serve their kinds.
    pub(crate) async fn ready(&self) {
        tokio::join!(
            self.infrastructures.ready_or_absent(),
            self.versions.ready_or_absent(),
            self.gates.ready_or_absent(),
            self.releases.ready_or_absent(),
        );
    }

    /// Returns the topology of the control plane.
    pub(crate) fn topology(&self) -> Option<Topology> {
        self.infrastructures.get(label::CLUSTER)?.status.control_plane_topology.clone()
    }

    /// Returns the facts on which boot images depend; `None` in a cluster without an Infrastructure.
    pub(crate) fn facts(&self, provisioning: Provisioning) -> Option<Facts> {
        let infrastructure = self.infrastructures.get(label::CLUSTER)?;
        let (version, gates) = (self.versions.get(VERSION), self.gates.get(label::CLUSTER));
        Some(Facts::new(&infrastructure, version.as_deref(), gates.as_deref(), provisioning))
    }

    /// Returns true if a condition of an admission policy holds.
    pub(crate) fn holds(&self, condition: Condition) -> bool {
        // The source of images on bare metal does not matter to any policy.
        let facts = || self.facts(Provisioning::Release);
        match condition {
            Condition::NoBootImages => facts().is_some_and(|it| !it.has_managed_boot_images()),
            Condition::NoControlPlaneBootImages => {
                facts().is_some_and(|it| !it.has_control_plane_boot_images())
            }
            Condition::OsStreams => {
                self.gates.get(label::CLUSTER).is_some_and(|it| is_enabled(&it, "OSStreams"))
            }
            Condition::InternalRelease => {
                self.releases.get(label::CLUSTER).is_some() && self.versions.get(VERSION).is_some()
            }
        }
    }
}

fn enqueue<K: Object>(cache: &Cache<K>, queue: &Arc<Queue<()>>) {
    let queue = queue.clone();
    cache.on_change(move |_| queue.add(()));
}

fn spawn<K>(
    cache: &Arc<Cache<K>>,
    client: &Client,
    config: WatchConfig,
    stop: &Shutdown,
    tasks: &mut JoinSet<()>,
) where
    K: Object + kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
{
    let (cache, api, stop) = (cache.clone(), Api::all(client.clone()), stop.clone());
    tasks.spawn(async move { cache.run(api, config, &stop).await });
}

/// Only the existence of the object matters.
fn trim_release(release: &mut InternalReleaseImage) {
    trim::metadata(release);
    release.status = None;
}

/// Returns the source of OS images on bare metal. An object that cannot be read counts as one that names
/// an image of its own.
pub(crate) async fn provisioning(client: &Client) -> Provisioning {
    let api = Api::<openshift::Provisioning>::all(client.clone());
    match api.get("provisioning-configuration").await.map_err(CallError::from) {
        Ok(found) if found.spec.provisioning_os_download_url.is_empty() => Provisioning::Release,
        // The object, or its kind, does not exist.
        Err(error) if error.is_not_found() => Provisioning::Release,
        Ok(_) | Err(_) => Provisioning::Legacy,
    }
}
