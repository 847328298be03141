//! Writes the PinnedImageSets of each pool into the pool's spec.
//!
//! observe (caches) -> the sets whose labels the pool's machineConfigSelector matches -> patch the
//! pool. The daemon pulls and pins the images.

use std::sync::Arc;

use kube::ResourceExt as _;
use mco_api::{
    MachineConfigPool, PinnedImageSet, condition::PoolCondition,
    machine_config_pool::PinnedImageSetReference, selector,
};
use mco_cluster::{
    Api, Queue, Shutdown,
    apply::{self, Precondition},
    cache::Change,
    health::Work,
    queue::Reconciled,
    report::chain,
};
use mco_core::status::Finding;
use serde_json::json;
use tracing::{info, warn};

use crate::{Context, condition, error::ActError};

/// Number of pools that are reconciled at a time.
const POOL_CONCURRENCY: usize = 2;

/// Runs the pinned image set controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    subscribe(&context, &queue);
    if !context.caches.ready(&shutdown).await || !context.caches.optional_ready(&shutdown).await {
        return;
    }
    let reconcile_pool = |pool: String| {
        let context = context.clone();
        async move { reconcile(&context, &pool).await }
    };
    context.health.queue("pinned-image-sets", &queue, Work::Short);
    queue.run(POOL_CONCURRENCY, &shutdown, reconcile_pool).await;
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let delay = context.delays.render;
    let pools = queue.clone();
    context.caches.pools.on_change(move |change| {
        if let Some(pool) = pool_to_enqueue(&change) {
            pools.add_debounced(pool, delay);
        }
    });
    let (sets, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.pinned_image_sets.on_change(move |change| {
        // A set that lost a label affects the pool that selected it before.
        let labels = |set: &PinnedImageSet| set.metadata.labels.clone().unwrap_or_default();
        let states = [change.before, change.after].map(|set| set.map(|set| labels(set)));
        if states.first() == states.last() {
            return;
        }
        for pool in known.list() {
            let selector = pool.spec.machine_config_selector.as_ref();
            let touched = states.iter().flatten().any(|labels| {
                selector.is_some_and(|one| selector::matches(one, labels).unwrap_or_default())
            });
            if touched {
                sets.add_debounced(pool.name_any(), delay);
            }
        }
    });
}

/// Returns the pool's name if a field changed that its PinnedImageSets depend on.
fn pool_to_enqueue(change: &Change<'_, MachineConfigPool>) -> Option<String> {
    let after = change.after?;
    let same = change.before.is_some_and(|before| {
        before.spec.machine_config_selector == after.spec.machine_config_selector
            && before.spec.pinned_image_sets == after.spec.pinned_image_sets
    });
    (!same).then(|| after.name_any())
}

async fn reconcile(context: &Context, name: &str) -> Reconciled {
    let Some(pool) = context.caches.pools.get(name) else { return Reconciled::Done };
    if pool.metadata.deletion_timestamp.is_some() {
        return Reconciled::Done;
    }
    let sets = context.caches.pinned_image_sets.list();
    let (found, again) = match sets_of(&pool, &sets) {
        Ok(None) => return Reconciled::Done,
        Ok(Some(wanted)) => match apply_sets(context, &pool, wanted).await {
            Ok(()) => (Finding::no("", ""), false),
            Err(error) => (failure(name, &chain(&error)), true),
        },
        Err(error) => (failure(name, &chain(&error)), false),
    };
    match condition::set(context, name, &PoolCondition::PinnedImageSetsDegraded, found).await {
        Ok(()) if !again => Reconciled::Done,
        Ok(()) => Reconciled::Retry,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "Failed to set PinnedImageSetsDegraded");
            Reconciled::Retry
        }
    }
}

fn failure(pool: &str, cause: &str) -> Finding {
    warn!(pool, cause, "Failed to update the pinned image sets of pool");
    Finding::yes("", &format!("Failed to populate pinned image sets for pool {pool}: {cause}"))
}

/// Returns the sets that a pool selects, by name; `None` for a pool that selects everything.
fn sets_of(
    pool: &MachineConfigPool,
    sets: &[Arc<PinnedImageSet>],
) -> Result<Option<Vec<PinnedImageSetReference>>, selector::SelectorError> {
    let Some(selector) = &pool.spec.machine_config_selector else { return Ok(Some(Vec::new())) };
    if selector::is_empty(selector) {
        return Ok(None);
    }
    let mut wanted = Vec::new();
    for set in sets {
        if selector::matches(selector, set.labels())? {
            wanted.push(PinnedImageSetReference { name: set.name_any() });
        }
    }
    wanted.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(Some(wanted))
}

async fn apply_sets(
    context: &Context,
    pool: &MachineConfigPool,
    wanted: Vec<PinnedImageSetReference>,
) -> Result<(), ActError> {
    if pool.spec.pinned_image_sets == wanted {
        return Ok(());
    }
    let name = pool.name_any();
    let count = wanted.len();
    let value = if wanted.is_empty() { json!(null) } else { json!(wanted) };
    let pools = Api::<MachineConfigPool>::all(context.client.clone());
    let patch = json!({"spec": {"pinnedImageSets": value}});
    let patched = apply::merge(&pools, &name, patch, Precondition::Any).await;
    let patched = patched.map_err(|source| ActError::PinImages { pool: name.clone(), source })?;
    context.caches.pools.learn(patched);
    info!(pool = name, sets = count, "Updated the pinned image sets of pool");
    Ok(())
}
