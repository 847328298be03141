//! The configs that pools select, each followed by its own watch.
//!
//! A cluster has many MachineConfigs of up to a megabyte, and a server needs two for each pool. So
//! it does not cache the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::Client;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_cluster::{Api, Cache, Health, Shutdown, cache::trim, watch};

/// The configs that pools select.
pub(super) struct SelectedConfigs {
    client: Client,
    health: Health,
    shutdown: Shutdown,
    watches: Mutex<BTreeMap<String, ConfigWatch>>,
}

/// The watch of one config. It ends when the value is dropped.
struct ConfigWatch {
    cache: Arc<Cache<MachineConfig>>,
    shutdown: Shutdown,
}

impl Drop for ConfigWatch {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

impl SelectedConfigs {
    pub(super) fn new(client: &Client, health: &Health, shutdown: &Shutdown) -> Self {
        Self {
            client: client.clone(),
            health: health.clone(),
            shutdown: shutdown.clone(),
            watches: Mutex::default(),
        }
    }

    /// Watches the configs that `pools` name, and no others.
    ///
    /// The next config of a pool is watched before it is served, so that it is there when the pool
    /// starts to select it.
    pub(super) fn follow(&self, pools: &[Arc<MachineConfigPool>]) {
        let wanted: BTreeSet<&str> = pools.iter().flat_map(|pool| names(pool)).collect();
        let mut watches = self.lock();
        watches.retain(|name, _| wanted.contains(name.as_str()));
        for name in wanted {
            if !watches.contains_key(name) {
                watches.insert(name.to_owned(), self.start(name));
            }
        }
    }

    /// Waits until all configs that are watched have arrived, or are known not to exist.
    ///
    /// A pool may select another config meanwhile. The watch of the former one ends, and may never
    /// have delivered it.
    pub(super) async fn ready(&self) {
        loop {
            let watches: Vec<_> = {
                let watches = self.lock();
                watches.values().map(|it| (it.cache.clone(), it.shutdown.clone())).collect()
            };
            let mut are_current = true;
            for (cache, ended) in watches {
                tokio::select! {
                    () = cache.ready() => {}
                    () = ended.requested() => are_current = false,
                }
            }
            if are_current || self.shutdown.is_requested() {
                return;
            }
        }
    }

    /// Returns the config of that name, if it has arrived.
    pub(super) fn get(&self, name: &str) -> Option<Arc<MachineConfig>> {
        self.lock().get(name)?.cache.get(name)
    }

    /// Returns the cache that has the config of that name, if the config is watched.
    pub(super) fn cache(&self, name: &str) -> Option<Arc<Cache<MachineConfig>>> {
        self.lock().get(name).map(|watch| watch.cache.clone())
    }

    fn start(&self, name: &str) -> ConfigWatch {
        let cache = Arc::new(Cache::new(trim::metadata));
        let config = watch::Config::default().health(&self.health).named(name);
        let shutdown = self.shutdown.child();
        let (running, api) = (cache.clone(), Api::all(self.client.clone()));
        let ends = shutdown.clone();
        tokio::spawn(async move { running.run(api, config, &ends).await });
        ConfigWatch { cache, shutdown }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ConfigWatch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the names of the config that `pool` has and of the one that it moves to.
fn names(pool: &MachineConfigPool) -> impl Iterator<Item = &str> {
    let current = pool.status.as_ref().map(|status| status.configuration.rendered.name.as_str());
    let both = [Some(pool.spec.configuration.rendered.name.as_str()), current];
    both.into_iter().flatten().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::client::Body;
    use mco_api::MachineConfigPoolSpec;

    use super::*;

    fn pool(config: &str) -> Arc<MachineConfigPool> {
        let mut pool = MachineConfigPool::new("worker", MachineConfigPoolSpec::default());
        pool.spec.configuration.rendered.name = config.to_owned();
        pool.into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_config_that_no_pool_selects_any_more_is_not_waited_for() {
        // The API server never answers about the first config, and has no second one.
        let answer = async |request: http::Request<Body>| {
            if request.uri().to_string().contains("rendered-worker-a") {
                std::future::pending::<()>().await;
            }
            let empty = r#"{"apiVersion": "machineconfiguration.openshift.io/v1", "metadata":
                {"resourceVersion": "1"}, "kind": "MachineConfigList", "items": []}"#;
            Ok::<_, tower::BoxError>(http::Response::new(Body::from(empty.as_bytes().to_vec())))
        };
        let answer = move |request| Box::pin(answer(request));
        let client = Client::new(tower::service_fn(answer), "default");
        let (health, shutdown) = (Health::default(), Shutdown::new());
        let configs = Arc::new(SelectedConfigs::new(&client, &health, &shutdown));
        configs.follow(&[pool("rendered-worker-a")]);
        let waiting = configs.clone();
        let mut ready = tokio::spawn(async move { waiting.ready().await });
        let waited = tokio::time::timeout(Duration::from_secs(1), &mut ready).await;
        assert!(waited.is_err(), "the selected config has not arrived");

        configs.follow(&[pool("rendered-worker-b")]);
        let ready = tokio::time::timeout(Duration::from_mins(1), ready).await;
        ready.expect("the server starts").unwrap();
        shutdown.request();
    }
}
