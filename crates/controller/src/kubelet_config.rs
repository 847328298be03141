//! Generates the MachineConfigs with settings of kubelets: of KubeletConfigs, of the settings of
//! nodes and of the features of the cluster.
//!
//! observe (caches) -> `mco_core::kubelet` (pure) -> apply MachineConfigs -> status of the
//! KubeletConfig. One pass covers all of them, because they share their inputs: the base
//! MachineConfigs, the pools and the settings of the cluster. A pass that finds nothing to change
//! writes nothing. An object that is refused does not hold up the others.

mod cleanup;
mod cluster;
mod object;

use std::sync::{Arc, Mutex};

use kube::ResourceExt as _;
use mco_api::{KubeletConfig, MachineConfig, MachineConfigPool, annotation};
use mco_cluster::{
    Queue, Reporter, Shutdown, cache::Change, health::Work, queue::Reconciled, report::chain,
};
use mco_core::{
    cluster_settings::ClusterSettings,
    kubelet::{self, Inputs, LatencyProfile},
};
use tracing::{debug, warn};

use crate::{Context, lasting_events::LastingEvents, render};

/// The only entry of the queue.
const PASS: &str = "kubelet-configs";

/// The controller.
struct Controller {
    context: Arc<Context>,
    reporter: Reporter,
    events: LastingEvents,
    /// The change of the latency profile that was reported last as not allowed.
    prohibited: Mutex<Option<(LatencyProfile, LatencyProfile)>>,
}

/// Everything that one pass reads once.
struct Pass {
    settings: ClusterSettings,
    pools: Vec<Arc<MachineConfigPool>>,
    /// Version of the cluster.
    version: String,
    latency: LatencyProfile,
}

/// Runs the controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    context.health.queue(PASS, &queue, Work::Short);
    subscribe(&context, &queue);
    if !context.caches.ready(&shutdown).await || !context.caches.settings.ready(&shutdown).await {
        return;
    }
    let reporter = context.reporter("kubeletconfigcontroller");
    let events = LastingEvents::new(reporter.clone());
    let controller = Controller { context, reporter, events, prohibited: Mutex::default() };
    queue.add(PASS.to_owned());
    queue.run(1, &shutdown, |_| controller.reconcile()).await;
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let delay = context.delays.node;
    let enqueue = || {
        let queue = queue.clone();
        move || queue.add_debounced(PASS.to_owned(), delay)
    };
    let (caches, metrics) = (&context.caches, context.metrics.clone());
    let on_config = enqueue();
    caches.kubelet_configs.on_change(move |change| {
        if change.after.is_none() {
            let name = change.before.map(|config| config.name_any()).unwrap_or_default();
            metrics.remove_action(crate::metrics::Action::KubeletConfig, &name);
        }
        if is_relevant(&change) {
            on_config();
        }
    });
    let on_pool = enqueue();
    caches.pools.on_change(move |change| {
        if changes_pool(&change) {
            on_pool();
        }
    });
    let on_machine_config = enqueue();
    caches.configs.on_change(move |change| {
        if changes_generated(&change) {
            on_machine_config();
        }
    });
    let on_controller_config = enqueue();
    caches.controller_configs.on_change(move |_| on_controller_config());
    caches.settings.on_change(enqueue());
}

/// Returns true unless only the status of a KubeletConfig changed.
fn is_relevant(change: &Change<'_, KubeletConfig>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    before.spec != after.spec
        || before.metadata.generation != after.metadata.generation
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        || before.metadata.finalizers != after.metadata.finalizers
        || before.metadata.annotations != after.metadata.annotations
}

/// Returns true if a pool is new, gone, or may be selected by other KubeletConfigs than before.
fn changes_pool(change: &Change<'_, MachineConfigPool>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    before.metadata.labels != after.metadata.labels
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        || before.uid() != after.uid()
        || before.spec.node_selector != after.spec.node_selector
}

/// Returns true if a base or generated MachineConfig changed.
fn changes_generated(change: &Change<'_, MachineConfig>) -> bool {
    let Some(config) = change.object() else { return false };
    let name = config.name_any();
    let prefixes = ["01-", "97-", "98-", "99-"];
    if !name.contains("kubelet") || !prefixes.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    before.spec != after.spec
        || before.metadata.labels != after.metadata.labels
        || before.metadata.annotations != after.metadata.annotations
        || before.metadata.owner_references != after.metadata.owner_references
}

impl Controller {
    async fn reconcile(&self) -> Reconciled {
        let caches = &self.context.caches;
        let Some(controller_config) = self.context.own_controller_config() else {
            return Reconciled::Done;
        };
        if let Some(why) = render::unfinished(&controller_config) {
            debug!(why, "Generating settings of kubelets postponed");
            return Reconciled::Done;
        }
        let settings = match caches.settings.get() {
            Ok(settings) => settings,
            Err(error) => return self.refuse_all(&chain(&error)).await,
        };
        let pools = caches.pools.list();
        let version = annotation::RELEASE_IMAGE_VERSION.name();
        let version = controller_config.annotations().get(version).cloned().unwrap_or_default();
        let latency = self.latency(&settings).await;
        let pass = Pass { settings, pools, version, latency };
        let mut outcome = self.reconcile_cluster(&pass).await;
        for config in by_age(caches.kubelet_configs.list()) {
            if let Err(error) = self.reconcile_object(&pass, &config).await {
                let name = config.name_any();
                warn!(config = name, error = chain(&error), "Failed to apply KubeletConfig");
                outcome = Reconciled::Retry;
            }
        }
        if let Err(error) = self.clean_up(&pass).await {
            warn!(error = chain(&error), "Failed to delete MachineConfigs that are not needed");
            outcome = Reconciled::Retry;
        }
        outcome
    }

    /// Reports on all KubeletConfigs that the settings of the cluster cannot be read. Generating
    /// anything without them would change nodes twice.
    async fn refuse_all(&self, cause: &str) -> Reconciled {
        warn!(cause, "Failed to read the settings of the cluster");
        let mut outcome = Reconciled::Done;
        for config in self.context.caches.kubelet_configs.list() {
            let deleted = config.metadata.deletion_timestamp.is_some();
            if !deleted && let Err(error) = self.report(&config, Some(cause)).await {
                warn!(error = chain(&error), "Failed to report on KubeletConfig");
                outcome = Reconciled::Retry;
            }
        }
        outcome
    }
}

impl Pass {
    /// Returns the MachineConfig with the base file of a pool.
    fn base(context: &Context, pool: &MachineConfigPool) -> Option<Arc<MachineConfig>> {
        context.caches.configs.get(&kubelet::base_name(&pool.name_any()))
    }

    /// Returns the inputs of a pool.
    fn inputs<'i>(
        &'i self,
        pool: &'i MachineConfigPool,
        base: Option<&'i MachineConfig>,
    ) -> Inputs<'i> {
        let (settings, version, latency) = (&self.settings, &*self.version, self.latency);
        Inputs { pool, base, settings, version, latency }
    }

    /// Returns the pools that exist and are not being deleted.
    fn live_pools(&self) -> impl Iterator<Item = &Arc<MachineConfigPool>> {
        self.pools.iter().filter(|pool| pool.metadata.deletion_timestamp.is_none())
    }
}

/// Sorts objects by age, so that the numbers of their MachineConfigs follow it.
fn by_age(mut configs: Vec<Arc<KubeletConfig>>) -> Vec<Arc<KubeletConfig>> {
    let created = |config: &KubeletConfig| config.creation_timestamp().map(|time| time.0);
    configs.sort_by_key(|config| (created(config), config.name_any()));
    configs
}
