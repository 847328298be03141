//! Caches of the settings of the whole cluster: OpenShift's kinds where the API server serves them, and the
//! ConfigMap `cluster-settings`.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Resource};
use mco_api::{
    label,
    openshift::{
        APIServer, ClusterImagePolicy, FeatureGate, Image, ImageContentSourcePolicy,
        ImageDigestMirrorSet, ImagePolicy, ImageTagMirrorSet, Node,
    },
};
use mco_cluster::{
    Api, Cache, CallError, Health, Object, Shutdown, cache::trim, client::namespace,
    error::Rejection, report::chain, watch,
};
use mco_core::cluster_settings::{CONFIG_MAP, ClusterSettings, SettingsError};
use tokio::{sync::watch as channel, task::JoinSet};
use tracing::warn;

use crate::scheduler::Scheduler;

/// Delay before API discovery is retried.
const DISCOVERY_RETRY: Duration = Duration::from_secs(2);

/// Groups and versions of OpenShift's kinds.
const VERSIONS: [&str; 2] = ["config.openshift.io/v1", "operator.openshift.io/v1alpha1"];

/// One cache per kind.
#[derive(Debug)]
pub(crate) struct SettingsCaches {
    images: Arc<Cache<Image>>,
    digest_mirror_sets: Arc<Cache<ImageDigestMirrorSet>>,
    tag_mirror_sets: Arc<Cache<ImageTagMirrorSet>>,
    content_source_policies: Arc<Cache<ImageContentSourcePolicy>>,
    cluster_image_policies: Arc<Cache<ClusterImagePolicy>>,
    image_policies: Arc<Cache<ImagePolicy>>,
    nodes: Arc<Cache<Node>>,
    feature_gates: Arc<Cache<FeatureGate>>,
    api_servers: Arc<Cache<APIServer>>,
    config_maps: Arc<Cache<ConfigMap>>,
    /// Name under which the cache has the ConfigMap.
    config_map: String,
    /// Kinds that the API server serves.
    served: OnceLock<BTreeSet<String>>,
    discovered: channel::Sender<bool>,
}

impl SettingsCaches {
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            config_map: format!("{}/{CONFIG_MAP}", namespace(client)),
            images: Arc::new(Cache::new(trim::metadata)),
            digest_mirror_sets: Arc::new(Cache::new(trim::metadata)),
            tag_mirror_sets: Arc::new(Cache::new(trim::metadata)),
            content_source_policies: Arc::new(Cache::new(trim::metadata)),
            cluster_image_policies: Arc::new(Cache::new(trim::metadata)),
            image_policies: Arc::new(Cache::new(trim::metadata)),
            nodes: Arc::new(Cache::new(trim::metadata)),
            feature_gates: Arc::new(Cache::new(trim::metadata)),
            api_servers: Arc::new(Cache::new(trim::metadata)),
            config_maps: Arc::new(Cache::new(trim::metadata)),
            served: OnceLock::new(),
            discovered: channel::Sender::new(false),
        }
    }

    /// Asks the API server which kinds it serves, and starts their watches; those of Schedulers too.
    pub(crate) async fn run(
        &self,
        client: Client,
        schedulers: Arc<Cache<Scheduler>>,
        health: &Health,
        shutdown: &Shutdown,
    ) {
        let config = || watch::Config::default().health(health);
        let mut tasks = JoinSet::new();
        let maps = Api::own(client.clone());
        spawn(&self.config_maps, maps, config().named(CONFIG_MAP), shutdown, &mut tasks);
        let served = tokio::select! {
            () = shutdown.requested() => return,
            served = served_kinds(&client) => served,
        };
        let mut watches =
            Watches { client, served: &served, config: config().optional(), shutdown, tasks };
        watches.start(&self.images);
        watches.start(&self.digest_mirror_sets);
        watches.start(&self.tag_mirror_sets);
        watches.start(&self.content_source_policies);
        watches.start(&self.cluster_image_policies);
        watches.start(&self.image_policies);
        watches.start(&self.nodes);
        watches.start(&self.feature_gates);
        watches.start(&self.api_servers);
        watches.start(&schedulers);
        let mut tasks = watches.tasks;
        drop(self.served.set(served));
        self.discovered.send_replace(true);
        while tasks.join_next().await.is_some() {}
    }

    /// Waits until all settings are cached. Returns false if shutdown was requested before.
    pub(crate) async fn ready(&self, shutdown: &Shutdown) -> bool {
        let all = async {
            let mut discovered = self.discovered.subscribe();
            // The sender is part of `self`, so it outlives this wait.
            drop(discovered.wait_for(|discovered| *discovered).await);
            self.config_maps.ready().await;
            self.cached(&self.images).await;
            self.cached(&self.digest_mirror_sets).await;
            self.cached(&self.tag_mirror_sets).await;
            self.cached(&self.content_source_policies).await;
            self.cached(&self.cluster_image_policies).await;
            self.cached(&self.image_policies).await;
            self.cached(&self.nodes).await;
            self.cached(&self.feature_gates).await;
            self.cached(&self.api_servers).await;
        };
        tokio::select! {
            () = shutdown.requested() => false,
            () = all => true,
        }
    }

    async fn cached<K: Object>(&self, cache: &Cache<K>) {
        if self.serves::<K>() {
            cache.ready_or_absent().await;
        }
    }

    /// Returns true if the API server serves a kind. Valid after [`Self::ready`].
    pub(crate) fn serves<K: Resource<DynamicType = ()>>(&self) -> bool {
        self.served.get().is_some_and(|served| served.contains(K::kind(&()).as_ref()))
    }

    /// Calls `listener` for every change of a setting.
    pub(crate) fn on_change(&self, listener: impl Fn() + Clone + Send + Sync + 'static) {
        fn each<K: Object>(
            cache: &Cache<K>,
            listener: &(impl Fn() + Clone + Send + Sync + 'static),
        ) {
            let listener = listener.clone();
            cache.on_change(move |_| listener());
        }
        each(&self.images, &listener);
        each(&self.digest_mirror_sets, &listener);
        each(&self.tag_mirror_sets, &listener);
        each(&self.content_source_policies, &listener);
        each(&self.cluster_image_policies, &listener);
        each(&self.image_policies, &listener);
        each(&self.nodes, &listener);
        each(&self.feature_gates, &listener);
        each(&self.api_servers, &listener);
        each(&self.config_maps, &listener);
    }

    /// Returns the settings: those of a kind that the API server serves, else those of the ConfigMap.
    /// Valid after [`Self::ready`].
    pub(crate) fn get(&self) -> Result<ClusterSettings, SettingsError> {
        let map = self.config_maps.get(&self.config_map);
        let mut settings = match map.as_deref() {
            Some(map) => ClusterSettings::from_config_map(map)?,
            None => ClusterSettings::default(),
        };
        self.replace_one(&self.images, &mut settings.image);
        self.replace(&self.digest_mirror_sets, &mut settings.digest_mirror_sets);
        self.replace(&self.tag_mirror_sets, &mut settings.tag_mirror_sets);
        self.replace(&self.content_source_policies, &mut settings.content_source_policies);
        self.replace(&self.cluster_image_policies, &mut settings.cluster_image_policies);
        self.replace(&self.image_policies, &mut settings.image_policies);
        self.replace_one(&self.nodes, &mut settings.node);
        self.replace_one(&self.feature_gates, &mut settings.feature_gate);
        self.replace_one(&self.api_servers, &mut settings.api_server);
        Ok(settings)
    }

    fn replace_one<K: Object + Clone>(&self, cache: &Cache<K>, setting: &mut Option<K>) {
        if self.serves::<K>() {
            *setting = cache.get(label::CLUSTER).map(Arc::unwrap_or_clone);
        }
    }

    fn replace<K: Object + Clone>(&self, cache: &Cache<K>, settings: &mut Vec<K>) {
        if self.serves::<K>() {
            *settings = cache.list().into_iter().map(Arc::unwrap_or_clone).collect();
        }
    }
}

/// The watches of the kinds that the API server serves.
struct Watches<'a> {
    client: Client,
    served: &'a BTreeSet<String>,
    config: watch::Config,
    shutdown: &'a Shutdown,
    tasks: JoinSet<()>,
}

impl Watches<'_> {
    fn start<K: Object>(&mut self, cache: &Arc<Cache<K>>) {
        if self.served.contains(K::kind(&()).as_ref()) {
            let api = Api::all(self.client.clone());
            spawn(cache, api, self.config.clone(), self.shutdown, &mut self.tasks);
        }
    }
}

fn spawn<K: Object>(
    cache: &Arc<Cache<K>>,
    api: Api<K>,
    config: watch::Config,
    shutdown: &Shutdown,
    tasks: &mut JoinSet<()>,
) {
    let (cache, shutdown) = (cache.clone(), shutdown.clone());
    tasks.spawn(async move { cache.run(api, config, &shutdown).await });
}

/// Returns the kinds that the API server serves in OpenShift's groups. Retries until the API server
/// answers; the answer is final, because a running cluster does not become an OpenShift cluster.
async fn served_kinds(client: &Client) -> BTreeSet<String> {
    let mut served = BTreeSet::new();
    for version in VERSIONS {
        loop {
            let found = client.list_api_group_resources(version).await;
            match found.map_err(CallError::from) {
                Ok(found) => {
                    served.extend(found.resources.into_iter().map(|resource| resource.kind));
                    break;
                }
                Err(error) if is_absent(&error) => break,
                Err(error) => {
                    warn!(
                        version,
                        error = chain(&error),
                        "Failed to discover the kinds of OpenShift"
                    );
                }
            }
            tokio::time::sleep(DISCOVERY_RETRY).await;
        }
    }
    served
}

fn is_absent(error: &CallError) -> bool {
    matches!(error.rejection(), Some(Rejection::NotFound | Rejection::Other(403)))
}
