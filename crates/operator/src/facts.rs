//! Observes the facts of the cluster that the ControllerConfig is made of.
//!
//! Each object is watched by its name, so that the operator needs no right to see others. Kinds that the
//! API server does not serve are looked for again: a cluster may get them later. The ConfigMaps of
//! OpenShift are watched only on OpenShift.

mod copies;
mod credentials;
pub(crate) mod tls;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use kube::Client;
use mco_api::{
    label,
    openshift::{APIServer, DNS, Image, Infrastructure, Network, Proxy},
};
use mco_cluster::{
    Api, Cache, CallError, Object, Queue, Shutdown, cache::trim, client::namespace,
    watch::Config as WatchConfig,
};
use mco_core::{
    cluster_settings::{self, ClusterSettings, SettingsError},
    controller_config::{
        self, Facts, FactsError, ImagesError, Origin, ReleaseImages, Services, Wanted,
        source::{self, CONFIG, Source},
    },
};
use tokio::time::timeout;
use tracing::warn;

use self::copies::Copies;
use crate::{Context, platform::Platform, root_ca};

/// Longest wait for the first answer about a ConfigMap. Later answers enqueue another reconcile.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

const DNS_SERVICE: (&str, &str) = ("kube-system", "kube-dns");
const API_SERVICE: (&str, &str) = ("default", "kubernetes");
const PULL_SECRET: &str = "pull-secret";
const PULLER: &str = "machine-os-puller";

/// A failure to make a ControllerConfig from the facts of the cluster.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RenderConfigError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error(transparent)]
    Images(#[from] ImagesError),
    #[error("failed to read the CA certificates of the API server")]
    Authorities(#[source] CallError),
    #[error("failed to read {object}")]
    Read { object: String, source: CallError },
    #[error("failed to write ConfigMap {object}")]
    Write { object: String, source: CallError },
    #[error("the API server has not answered yet about {0}")]
    NoAnswer(String),
}

/// Caches of the objects that facts are read from.
pub(crate) struct FactSources {
    /// That of [`Platform`], which watches it.
    infrastructures: Arc<Cache<Infrastructure>>,
    api_servers: Arc<Cache<APIServer>>,
    networks: Arc<Cache<Network>>,
    proxies: Arc<Cache<Proxy>>,
    dns: Arc<Cache<DNS>>,
    images: Arc<Cache<Image>>,
    dns_service: Arc<Cache<Service>>,
    api_service: Arc<Cache<Service>>,
    /// ConfigMaps by name, watched as soon as they are needed.
    maps: Mutex<BTreeMap<Source, Arc<Cache<ConfigMap>>>>,
    /// Set when the kinds of OpenShift are watched.
    openshift: OnceLock<()>,
    /// Credentials of registries, watched on OpenShift. Their data are read when they are needed.
    credentials: OnceLock<()>,
    watching: OnceLock<Watching>,
    copies: Copies,
    /// The last warnings, which are logged once.
    warned: Mutex<Vec<String>>,
}

/// The parts of a watch.
struct Watching {
    client: Client,
    config: WatchConfig,
    queue: Arc<Queue<()>>,
    shutdown: Shutdown,
}

impl Watching {
    /// Starts a watch of one object.
    fn start<K: Object>(&self, cache: &Arc<Cache<K>>, api: Api<K>, name: &str) {
        let queue = self.queue.clone();
        cache.on_change(move |_| queue.add(()));
        let (cache, shutdown) = (cache.clone(), self.shutdown.clone());
        let config = self.config.clone().named(name);
        tokio::spawn(async move { cache.run(api, config, &shutdown).await });
    }
}

impl FactSources {
    pub(crate) fn new(platform: &Platform) -> Self {
        Self {
            infrastructures: platform.infrastructures(),
            api_servers: Arc::new(Cache::new(trim::metadata)),
            networks: Arc::new(Cache::new(trim::metadata)),
            proxies: Arc::new(Cache::new(trim::metadata)),
            dns: Arc::new(Cache::new(trim::metadata)),
            images: Arc::new(Cache::new(trim::metadata)),
            dns_service: Arc::new(Cache::new(trim::metadata)),
            api_service: Arc::new(Cache::new(trim::metadata)),
            maps: Mutex::default(),
            openshift: OnceLock::new(),
            credentials: OnceLock::new(),
            watching: OnceLock::new(),
            copies: Copies::default(),
            warned: Mutex::default(),
        }
    }

    /// Starts the watches. Each change adds to `queue`.
    pub(crate) fn watch(
        &self,
        client: &Client,
        config: WatchConfig,
        queue: &Arc<Queue<()>>,
        shutdown: &Shutdown,
    ) {
        let watching = self.watching.get_or_init(|| Watching {
            client: client.clone(),
            config: config.optional(),
            queue: queue.clone(),
            shutdown: shutdown.clone(),
        });
        let client = || watching.client.clone();
        for (cache, (namespace, name)) in
            [(&self.dns_service, DNS_SERVICE), (&self.api_service, API_SERVICE)]
        {
            watching.start(cache, Api::namespaced(client(), namespace), name);
        }
        self.map(&settings_of(&watching.client));
    }

    /// Watches the other kinds of OpenShift, and waits for the first answer of the API server. A
    /// cluster without an Infrastructure is not asked for them.
    async fn watch_openshift(&self) -> Result<(), RenderConfigError> {
        self.openshift.get_or_init(|| {
            let Some(watching) = self.watching.get() else { return };
            let client = || watching.client.clone();
            watching.start(&self.networks, Api::all(client()), label::CLUSTER);
            watching.start(&self.proxies, Api::all(client()), label::CLUSTER);
            watching.start(&self.dns, Api::all(client()), label::CLUSTER);
            watching.start(&self.images, Api::all(client()), label::CLUSTER);
            watching.start(&self.api_servers, Api::all(client()), label::CLUSTER);
        });
        let answers = async {
            tokio::join!(
                self.networks.ready_or_absent(),
                self.proxies.ready_or_absent(),
                self.dns.ready_or_absent(),
                self.images.ready_or_absent(),
                self.api_servers.ready_or_absent(),
            )
        };
        let answered = timeout(FIRST_ANSWER, answers).await;
        answered.map(drop).map_err(|_| RenderConfigError::NoAnswer("the kinds of OpenShift".into()))
    }

    /// Returns the Infrastructure of OpenShift. The other kinds of OpenShift are cached then.
    async fn openshift(&self) -> Result<Option<Infrastructure>, RenderConfigError> {
        let infrastructure = one(&self.infrastructures);
        if infrastructure.is_some() {
            self.watch_openshift().await?;
        }
        Ok(infrastructure)
    }

    /// Returns the settings of a cluster without the kinds of OpenShift.
    async fn settings(&self, client: &Client) -> Result<ClusterSettings, RenderConfigError> {
        match self.config_map(&settings_of(client)).await? {
            Some(map) => Ok(ClusterSettings::from_config_map(&map)?),
            None => Ok(ClusterSettings::default()),
        }
    }

    /// Waits until the API server has answered for the first time.
    pub(crate) async fn ready(&self) {
        tokio::join!(self.dns_service.ready_or_absent(), self.api_service.ready_or_absent(),);
    }

    /// Returns the cache of a ConfigMap. Starts its watch if it is new.
    fn map(&self, source: &Source) -> Arc<Cache<ConfigMap>> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = maps.entry(source.clone()).or_insert_with(|| {
            let cache = Arc::new(Cache::new(trim::metadata));
            if let Some(watching) = self.watching.get() {
                let api = Api::namespaced(watching.client.clone(), &source.namespace);
                watching.start(&cache, api, &source.name);
            }
            cache
        });
        cache.clone()
    }

    /// Returns a ConfigMap. Waits for the first answer of the API server.
    async fn config_map(
        &self,
        source: &Source,
    ) -> Result<Option<Arc<ConfigMap>>, RenderConfigError> {
        let cache = self.map(source);
        let answered = timeout(FIRST_ANSWER, cache.ready_or_absent()).await;
        answered.map_err(|_| RenderConfigError::NoAnswer(format!("ConfigMap {source}")))?;
        Ok(cache.get(&source.to_string()))
    }

    /// Watches the credentials of an OpenShift cluster. Only their metadata are cached.
    fn watch_credentials(&self) {
        self.credentials.get_or_init(|| {
            let Some(watching) = self.watching.get() else { return };
            let secrets: Arc<Cache<Secret>> = Arc::new(Cache::new(trim_secret));
            let api = Api::namespaced(watching.client.clone(), CONFIG);
            watching.start(&secrets, api, PULL_SECRET);
            let accounts: Arc<Cache<ServiceAccount>> = Arc::new(Cache::new(trim::metadata));
            let api = Api::own(watching.client.clone());
            watching.start(&accounts, api, PULLER);
        });
    }

    /// Returns true while daemons are told that the CA certificates of the API server changed.
    pub(crate) fn rotates(&self) -> bool {
        self.copies.rotates()
    }

    fn warn_once(&self, warnings: &[String]) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        for warning in warnings.iter().filter(|warning| !warned.contains(warning)) {
            warn!(warning, "A fact of the cluster is incomplete");
        }
        *warned = warnings.to_vec();
    }
}

/// Returns the ControllerConfig that the facts of the cluster give, and writes the ConfigMaps that
/// follow from them.
pub(crate) async fn render(context: &Context) -> Result<Box<Wanted>, RenderConfigError> {
    let mut warnings = Vec::new();
    let facts = Box::pin(observe(context, &mut warnings)).await?;
    let wanted = Box::new(controller_config::wanted(&facts)?);
    warnings.extend(wanted.warnings.clone());
    context.facts.warn_once(&warnings);
    if facts.origin == Origin::OpenShift {
        context.facts.copies.write(context, &facts).await?;
    }
    Ok(wanted)
}

async fn observe(
    context: &Context,
    warnings: &mut Vec<String>,
) -> Result<Box<Facts>, RenderConfigError> {
    let sources = &context.facts;
    let settings = sources.settings(&context.client).await?;
    let infrastructure = sources.openshift().await?;
    let images = images(context)?;
    let authorities = root_ca::fetch(context).await.map_err(RenderConfigError::Authorities)?;
    let mut facts = Box::new(Facts {
        namespace: Some(namespace(&context.client).to_owned()),
        origin: if infrastructure.is_some() { Origin::OpenShift } else { Origin::Other },
        infrastructure: infrastructure.or(settings.infrastructure),
        network: one(&sources.networks).or(settings.network),
        proxy: one(&sources.proxies).or(settings.proxy).or_else(|| proxy(context)),
        dns: one(&sources.dns).or(settings.dns),
        image: one(&sources.images).or(settings.image),
        services: Services {
            dns: addresses(&sources.dns_service),
            kubernetes: addresses(&sources.api_service),
        },
        authorities,
        api_server_url: context.config.api_server_url.clone(),
        images: images.images,
        os_image: images.os_image,
        os_extensions_image: images.os_extensions_image,
        ..Facts::default()
    });
    for source in facts.sources() {
        if let Some(map) = sources.config_map(&source).await? {
            facts.config_maps.insert(source, &map);
        }
    }
    if facts.origin == Origin::OpenShift && facts.is_installed() {
        sources.watch_credentials();
        facts.credentials = credentials::read(&context.client, warnings).await?;
    }
    Ok(facts)
}

/// Returns the ConfigMap with the settings of a cluster without the kinds of OpenShift.
fn settings_of(client: &Client) -> Source {
    source::own(namespace(client), cluster_settings::CONFIG_MAP)
}

/// Returns the object `cluster` of a kind.
fn one<K: Object + Clone>(cache: &Cache<K>) -> Option<K> {
    cache.get(label::CLUSTER).map(Arc::unwrap_or_clone)
}

/// Returns the addresses of a Service.
fn addresses(cache: &Cache<Service>) -> Vec<String> {
    let found = cache.list().into_iter().next();
    let spec = found.and_then(|found| found.spec.clone()).unwrap_or_default();
    spec.cluster_ips
        .filter(|all| !all.is_empty())
        .unwrap_or_else(|| spec.cluster_ip.into_iter().collect())
}

/// Returns the proxy of the flags.
fn proxy(context: &Context) -> Option<Proxy> {
    let given = context.config.proxy.clone()?;
    let mut proxy = Proxy::default();
    proxy.spec.settings = given;
    Some(proxy)
}

/// Returns the images of the flags, and those of `images.json` where no flag names one.
fn images(context: &Context) -> Result<ReleaseImages, RenderConfigError> {
    let config = &context.config;
    let mut images = match &config.images_json {
        Some(file) => {
            let text = file.read().map_err(ImagesError::Read)?;
            controller_config::release_images(&text, &config.release)?
        }
        None => ReleaseImages::default(),
    };
    if !config.image.is_empty() {
        // Compat: the name is the reference's.
        images.images.insert("machineConfigOperator".to_owned(), config.image.clone());
    }
    let flags = [
        (&mut images.os_image, &config.os_image),
        (&mut images.os_extensions_image, &config.os_extensions_image),
    ];
    for (image, flag) in flags {
        if !flag.is_empty() {
            image.clone_from(flag);
        }
    }
    Ok(images)
}

fn trim_secret(secret: &mut Secret) {
    trim::metadata(secret);
    (secret.data, secret.string_data) = (None, None);
}
