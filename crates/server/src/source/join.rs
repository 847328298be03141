//! The kubeconfig with which new machines join a cluster, built once for each change of its inputs.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::api::{core::v1::ConfigMap, discovery::v1::EndpointSlice};
use kube::Client;
use mco_api::ControllerConfig;
use mco_cluster::{Api, Cache, Object, Shutdown, watch};

use super::{CONTROLLER_CONFIG, LookupError, cluster::start_watch, credentials::Credentials};
use crate::{
    api_url::{self, ApiUrl},
    document::Kubeconfig,
    kubeconfig,
    source::CredentialsError,
};

const KUBECONFIG_DATA: &str = "kubeconfig-data";
const CA_BUNDLE: &str = "ca-bundle.crt";

/// Namespace and name of the ConfigMap with which kubeadm joins machines.
const CLUSTER_INFO: (&str, &str) = ("kube-public", "cluster-info");

/// Namespace and label of the EndpointSlices of the Service `kubernetes`.
const KUBERNETES: (&str, &str) = ("default", "kubernetes.io/service-name=kubernetes");

/// Settings of the kubeconfig for a new machine's kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSettings {
    /// URL of the API server as machines see it.
    pub server: ApiUrl,
    /// Folder with the files `token` and `ca.crt`.
    pub credentials: PathBuf,
}

/// Inputs of the kubeconfig, and the kubeconfig that was last built from them.
pub(super) struct JoinKubeconfig {
    server: ServerUrl,
    credentials: Arc<Credentials>,
    bundles: Arc<Cache<ConfigMap>>,
    changes: Changes,
    built: Mutex<Option<Built>>,
}

/// Source of the URL.
enum ServerUrl {
    Fixed(String),
    Auto {
        controllers: Arc<Cache<ControllerConfig>>,
        cluster_info: Arc<Cache<ConfigMap>>,
        slices: Arc<Cache<EndpointSlice>>,
    },
}

/// Number of changes of the inputs so far.
#[derive(Clone, Debug, Default)]
struct Changes(Arc<AtomicU64>);

struct Built {
    /// Number of changes before the inputs were read.
    changes: u64,
    kubeconfig: Kubeconfig,
}

impl Changes {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn follow<K: Object>(&self, cache: &Cache<K>) {
        let changes = self.clone();
        cache.on_change(move |_| changes.add());
    }
}

impl JoinKubeconfig {
    /// Starts the watches of the inputs. `controllers` is a cache that another task fills.
    pub(super) async fn watch(
        client: &Client,
        settings: JoinSettings,
        controllers: &Arc<Cache<ControllerConfig>>,
        config: &watch::Config,
        shutdown: &Shutdown,
    ) -> Self {
        let changes = Changes::default();
        let credentials = Arc::new(Credentials::open(settings.credentials).await);
        spawn_refresh(credentials.clone(), changes.clone(), shutdown.clone());
        let one = config.clone().named(KUBECONFIG_DATA);
        let bundles = start_watch(Api::own(client.clone()), one, shutdown);
        changes.follow(&bundles);
        let server = match settings.server {
            ApiUrl::Fixed(url) => ServerUrl::Fixed(url),
            ApiUrl::Auto => {
                let found = auto(client, controllers, config, shutdown);
                if let ServerUrl::Auto { controllers, cluster_info, slices } = &found {
                    changes.follow(controllers);
                    changes.follow(cluster_info);
                    changes.follow(slices);
                }
                found
            }
        };
        Self { server, credentials, bundles, changes, built: Mutex::default() }
    }

    /// Waits until the inputs have arrived. Those that only the search for a URL needs may be denied.
    pub(super) async fn ready(&self) {
        self.bundles.ready().await;
        if let ServerUrl::Auto { cluster_info, slices, .. } = &self.server {
            cluster_info.ready_or_absent().await;
            slices.ready_or_absent().await;
        }
    }

    /// Returns the kubeconfig of the current inputs.
    pub(super) fn get(&self) -> Result<Kubeconfig, LookupError> {
        // Read before the inputs: a change that comes later is noticed by the next call.
        let changes = self.changes.count();
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = built.as_ref().filter(|known| known.changes == changes) {
            return Ok(known.kubeconfig.clone());
        }
        let new = self.build()?;
        // Equal texts share one allocation, so that documents are compared by their address.
        let kubeconfig = match built.take() {
            Some(known) if known.kubeconfig == new => known.kubeconfig,
            Some(_) | None => new,
        };
        *built = Some(Built { changes, kubeconfig: kubeconfig.clone() });
        Ok(kubeconfig)
    }

    fn build(&self) -> Result<Kubeconfig, LookupError> {
        let server = self.server.resolve().map_err(LookupError::ApiUrl)?;
        let current = self.credentials.current().map_err(LookupError::Credentials)?;
        let bundle = self.bundles.list().into_iter().next();
        let bundle = bundle.as_ref().and_then(|map| map.binary_data.as_ref()?.get(CA_BUNDLE));
        let ca = match bundle {
            Some(bundle) => &bundle.0,
            None => current.ca.as_ref().map_err(|error| LookupError::Credentials(error.clone()))?,
        };
        let yaml = kubeconfig::yaml(&server, ca, &current.token);
        let yaml = yaml.map_err(|fault| Arc::new(CredentialsError::Write(fault)));
        Ok(Kubeconfig(yaml.map_err(LookupError::Credentials)?.into_bytes().into()))
    }
}

impl ServerUrl {
    fn resolve(&self) -> Result<String, api_url::UnknownApiUrl> {
        match self {
            Self::Fixed(url) => Ok(url.clone()),
            Self::Auto { controllers, cluster_info, slices } => {
                let controller = controllers.get(CONTROLLER_CONFIG);
                let info = cluster_info.get(&format!("{}/{}", CLUSTER_INFO.0, CLUSTER_INFO.1));
                api_url::resolve(controller.as_deref(), info.as_deref(), &slices.list())
            }
        }
    }
}

fn auto(
    client: &Client,
    controllers: &Arc<Cache<ControllerConfig>>,
    config: &watch::Config,
    shutdown: &Shutdown,
) -> ServerUrl {
    let info = config.clone().optional().named(CLUSTER_INFO.1);
    let slices = config.clone().optional().labels(KUBERNETES.1);
    ServerUrl::Auto {
        controllers: controllers.clone(),
        cluster_info: start_watch(Api::namespaced(client.clone(), CLUSTER_INFO.0), info, shutdown),
        slices: start_watch(Api::namespaced(client.clone(), KUBERNETES.0), slices, shutdown),
    }
}

fn spawn_refresh(credentials: Arc<Credentials>, changes: Changes, shutdown: Shutdown) {
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.requested() => {}
            () = credentials.run_refresh(|| changes.add()) => {}
        }
    });
}
