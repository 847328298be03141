//! Configs from a cluster, read from watches.

use std::{fmt, path::PathBuf, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};
use mco_cluster::{Api, Cache, Health, Object, Shutdown, cache::trim, watch};

use super::{
    CONTROLLER_CONFIG, CredentialsError, LookupError, Source, credentials::Credentials,
    select_config,
};
use crate::{
    document::{FirstBoot, Inputs, Kubeconfig},
    kubeconfig,
};

const NAMESPACE: &str = "openshift-machine-config-operator";
const KUBECONFIG_DATA: &str = "kubeconfig-data";
const CA_BUNDLE: &str = "ca-bundle.crt";

/// Settings of the kubeconfig for a new machine's kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinSettings {
    /// URL of the API server as machines see it.
    pub server: String,
    /// Folder with the files `token` and `ca.crt`.
    pub credentials: PathBuf,
}

/// Configs from a cluster.
pub struct ClusterSource {
    pools: Arc<Cache<MachineConfigPool>>,
    configs: Arc<Cache<MachineConfig>>,
    controllers: Arc<Cache<ControllerConfig>>,
    bundles: Arc<Cache<ConfigMap>>,
    joining: Option<(String, Arc<Credentials>)>,
    health: Health,
}

impl fmt::Debug for ClusterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("joining", &self.joining.is_some()).finish_non_exhaustive()
    }
}

impl ClusterSource {
    /// Starts the watches, which run until `shutdown`. Without `joining`, machines get no
    /// kubeconfig.
    pub async fn watch(
        client: &Client,
        joining: Option<JoinSettings>,
        shutdown: &Shutdown,
    ) -> Self {
        let health = Health::default();
        let all = || watch::Config::default().health(&health);
        let one = all().named(KUBECONFIG_DATA);
        let joining = match joining {
            Some(JoinSettings { server, credentials }) => {
                let credentials = Arc::new(Credentials::open(credentials).await);
                spawn_refresh(credentials.clone(), shutdown.clone());
                Some((server, credentials))
            }
            None => None,
        };
        Self {
            pools: start_watch(Api::all(client.clone()), all(), shutdown),
            configs: start_watch(Api::all(client.clone()), all(), shutdown),
            controllers: start_watch(Api::all(client.clone()), all(), shutdown),
            bundles: start_watch(Api::namespaced(client.clone(), NAMESPACE), one, shutdown),
            joining,
            health,
        }
    }

    /// Returns the health of the watches.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    fn kubeconfig(&self) -> Result<Option<Kubeconfig>, Arc<CredentialsError>> {
        let Some((server, credentials)) = &self.joining else { return Ok(None) };
        let current = credentials.current()?;
        let bundle = self.bundles.get(&format!("{NAMESPACE}/{KUBECONFIG_DATA}"));
        let bundle = bundle.as_ref().and_then(|map| map.binary_data.as_ref()?.get(CA_BUNDLE));
        let yaml = match bundle {
            Some(bundle) => kubeconfig::yaml(server, &bundle.0, &current.token),
            None => kubeconfig::yaml(server, &current.ca?, &current.token),
        };
        let yaml = yaml.map_err(|fault| Arc::new(CredentialsError::Write(fault)))?;
        Ok(Some(Kubeconfig(yaml.into())))
    }
}

impl Source for ClusterSource {
    async fn ready(&self) {
        self.pools.ready().await;
        self.configs.ready().await;
        self.controllers.ready().await;
        self.bundles.ready().await;
    }

    fn stale_watches(&self) -> Vec<String> {
        self.health.stale_watches()
    }

    fn inputs(&self, pool: &str) -> Result<Inputs, LookupError> {
        let found = self.pools.get(pool).ok_or_else(|| LookupError::Pool(pool.to_owned()))?;
        let chosen = select_config(&found);
        let config = self.configs.get(chosen).ok_or_else(|| LookupError::Config {
            pool: pool.to_owned(),
            config: chosen.to_owned(),
        })?;
        let controller =
            self.controllers.get(CONTROLLER_CONFIG).ok_or(LookupError::ControllerConfig)?;
        let kubeconfig = self.kubeconfig().map_err(LookupError::Credentials)?;
        Ok(Inputs { config, first_boot: Some(FirstBoot { controller, kubeconfig }) })
    }
}

fn start_watch<K: Object>(
    api: Api<K>,
    config: watch::Config,
    shutdown: &Shutdown,
) -> Arc<Cache<K>> {
    let cache = Arc::new(Cache::new(trim::metadata));
    let (running, shutdown) = (cache.clone(), shutdown.clone());
    tokio::spawn(async move { running.run(api, config, &shutdown).await });
    cache
}

fn spawn_refresh(credentials: Arc<Credentials>, shutdown: Shutdown) {
    tokio::spawn(async move {
        tokio::select! {
            () = shutdown.requested() => {}
            () = credentials.run_refresh() => {}
        }
    });
}
