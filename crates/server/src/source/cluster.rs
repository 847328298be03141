//! Configs from a cluster, read from watches.

use std::{fmt, sync::Arc, time::Duration};

use kube::Client;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};
use mco_cluster::{Api, Cache, Health, Object, Shutdown, cache::trim, watch};
use tokio::{sync::Notify, time::timeout};

use super::{
    CONTROLLER_CONFIG, LookupError, Source,
    join::{JoinKubeconfig, JoinSettings},
    select_config,
    selected_configs::SelectedConfigs,
};
use crate::document::{FirstBoot, Inputs};

/// Time that a request waits for a config that a pool selects since a moment ago. Ignition waits ten
/// seconds for a response.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(3);

/// Configs from a cluster.
pub struct ClusterSource {
    pools: Arc<Cache<MachineConfigPool>>,
    configs: Arc<SelectedConfigs>,
    controllers: Arc<Cache<ControllerConfig>>,
    joining: Option<JoinKubeconfig>,
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
        let all = watch::Config::default().health(&health);
        let pools = start_watch(Api::all(client.clone()), all.clone(), shutdown);
        let configs = Arc::new(SelectedConfigs::new(client, &health, shutdown));
        spawn_follow(pools.clone(), configs.clone(), shutdown.clone());
        let controllers = start_watch(Api::all(client.clone()), all.clone(), shutdown);
        let joining = match joining {
            Some(settings) => {
                Some(JoinKubeconfig::watch(client, settings, &controllers, &all, shutdown).await)
            }
            None => None,
        };
        Self { pools, configs, controllers, joining, health }
    }

    /// Returns the health of the watches.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Returns the config of that name, which a pool selects.
    async fn config(&self, name: &str) -> Option<Arc<MachineConfig>> {
        if let Some(known) = self.configs.get(name) {
            return Some(known);
        }
        // The pool has just changed, or the config does not exist.
        self.configs.follow(&self.pools.list());
        let cache = self.configs.cache(name)?;
        // A time-out is the same as a config that does not exist: the machine retries.
        drop(timeout(ARRIVAL_LIMIT, cache.ready()).await);
        cache.get(name)
    }
}

impl Source for ClusterSource {
    async fn ready(&self) {
        self.pools.ready().await;
        self.configs.follow(&self.pools.list());
        self.configs.ready().await;
        self.controllers.ready().await;
        if let Some(joining) = &self.joining {
            joining.ready().await;
        }
    }

    fn stale_watches(&self) -> Vec<String> {
        self.health.stale_watches()
    }

    async fn inputs(&self, pool: &str) -> Result<Inputs, LookupError> {
        let found = self.pools.get(pool).ok_or_else(|| LookupError::Pool(pool.to_owned()))?;
        let chosen = select_config(&found);
        if chosen.is_empty() {
            return Err(LookupError::NoConfig(pool.to_owned()));
        }
        let config = self.config(chosen).await.ok_or_else(|| LookupError::Config {
            pool: pool.to_owned(),
            config: chosen.to_owned(),
        })?;
        let controller =
            self.controllers.get(CONTROLLER_CONFIG).ok_or(LookupError::ControllerConfig)?;
        let kubeconfig = self.joining.as_ref().map(JoinKubeconfig::get).transpose()?;
        Ok(Inputs { config, first_boot: Some(FirstBoot::new(controller, kubeconfig)) })
    }
}

pub(super) fn start_watch<K: Object>(
    api: Api<K>,
    config: watch::Config,
    shutdown: &Shutdown,
) -> Arc<Cache<K>> {
    let cache = Arc::new(Cache::new(trim::metadata));
    let (running, shutdown) = (cache.clone(), shutdown.clone());
    tokio::spawn(async move { running.run(api, config, &shutdown).await });
    cache
}

/// Watches the configs of the pools as these change.
fn spawn_follow(
    pools: Arc<Cache<MachineConfigPool>>,
    configs: Arc<SelectedConfigs>,
    shutdown: Shutdown,
) {
    let changed = Arc::new(Notify::new());
    let announced = changed.clone();
    pools.on_change(move |_| announced.notify_one());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = shutdown.requested() => return,
                () = changed.notified() => configs.follow(&pools.list()),
            }
        }
    });
}
