//! The Lease of the controller, which shows that the controller runs.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use mco_cluster::{
    Api, Cache, CallError, Queue, Shutdown,
    cache::{Change, trim},
    client::namespace,
    watch::Config as WatchConfig,
};
use mco_core::status::operator::{ControllerState, controller_state, silence_limit};
use tokio::time::Instant;

/// Name of the controller's Lease.
const NAME: &str = "machine-config-controller";

/// The Lease of the controller, and the time of its last observed change.
pub(crate) struct ControllerLease {
    api: Api<Lease>,
    /// Name under which the cache has the Lease.
    key: String,
    cache: Cache<Lease>,
    seen: Mutex<Seen>,
}

struct Seen {
    changed: Instant,
    /// True if the controller was last found to be silent.
    silent: bool,
}

impl ControllerLease {
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            key: format!("{}/{NAME}", namespace(client)),
            api: Api::own(client.clone()),
            cache: Cache::new(trim::metadata),
            seen: Mutex::new(Seen { changed: Instant::now(), silent: false }),
        }
    }

    /// Records changes of the Lease. Adds to `queue` when a silent controller is heard of again; a
    /// renewal of a running one needs no reconcile.
    pub(crate) fn subscribe(self: &Arc<Self>, queue: &Arc<Queue<()>>) {
        let (lease, queue) = (Arc::downgrade(self), queue.clone());
        self.cache.on_change(move |change: Change<'_, Lease>| {
            let spec = |lease: Option<&Arc<Lease>>| lease.map(|lease| lease.spec.clone());
            if spec(change.before) == spec(change.after) {
                return;
            }
            if lease.upgrade().is_some_and(|lease| lease.record_change() || change.before.is_none())
            {
                queue.add(());
            }
        });
    }

    /// Runs the watch until shutdown.
    pub(crate) async fn run(&self, config: WatchConfig, shutdown: &Shutdown) {
        self.cache.run(self.api.clone(), config.named(NAME), shutdown).await;
    }

    /// Waits until the Lease was read once.
    pub(crate) async fn ready(&self) {
        self.cache.ready().await;
    }

    /// Returns the state of the controller, and the time after which it may be another one although
    /// the Lease does not change.
    pub(crate) async fn state(&self) -> Result<(ControllerState, Option<Duration>), CallError> {
        let cached = self.cache.get(&self.key);
        let mut state = self.state_of(cached.as_deref());
        if matches!(state, ControllerState::Silent { .. }) {
            // The watch may be the one that is silent.
            let live = self.api.get_opt(NAME).await?;
            if live.as_ref().map(|lease| &lease.spec) != cached.as_ref().map(|lease| &lease.spec) {
                self.record_change();
                state = self.state_of(live.as_ref());
            }
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.silent = matches!(state, ControllerState::Silent { .. });
        let running = cached.filter(|_| state == ControllerState::Running);
        let left =
            running.map(|lease| silence_limit(&lease).saturating_sub(seen.changed.elapsed()));
        Ok((state, left))
    }

    fn state_of(&self, lease: Option<&Lease>) -> ControllerState {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        controller_state(lease, seen.changed.elapsed())
    }

    /// Records a change of the Lease. Returns true if the controller was silent before.
    fn record_change(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.changed = Instant::now();
        seen.silent
    }
}
