//! Writes into each pool which PinnedImageSets its nodes are to have.
//!
//! observe (caches) -> the sets whose labels the pool's machineConfigSelector matches -> patch the pool.
//! Pulling and keeping the images is the daemon's part.

use std::sync::Arc;

use kube::{Api, ResourceExt as _};
use mco_api::{
    MachineConfigPool, PinnedImageSet, condition::PoolCondition,
    machine_config_pool::PinnedImageSetReference, selector,
};
use mco_cluster::{
    Queue, Shutdown,
    apply::{self, Guard},
    cache::Change,
    queue::Next,
    report::chain,
};
use mco_core::status::Finding;
use serde_json::json;
use tracing::{info, warn};

use crate::{Context, condition, error::ActError};

/// How many pools are looked at at a time.
const WIDTH: usize = 2;

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    listen(&context, &queue);
    if !context.caches.ready(&shutdown).await || !context.caches.optional(&shutdown).await {
        return;
    }
    let look = |pool: String| {
        let context = context.clone();
        async move { sync(&context, &pool).await }
    };
    queue.run(WIDTH, &shutdown, look).await;
}

fn listen(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let delay = context.settle.render;
    let pools = queue.clone();
    context.caches.pools.on_change(move |change| {
        if let Some(pool) = pool_to_look_at(&change) {
            pools.settle(pool, delay);
        }
    });
    let (sets, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.pinned.on_change(move |change| {
        // A set that lost a label matters to the pool that it was for.
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
                sets.settle(pool.name_any(), delay);
            }
        }
    });
}

/// The pool, if something changed that its sets depend on.
fn pool_to_look_at(change: &Change<'_, MachineConfigPool>) -> Option<String> {
    let after = change.after?;
    let same = change.before.is_some_and(|before| {
        before.spec.machine_config_selector == after.spec.machine_config_selector
            && before.spec.pinned_image_sets == after.spec.pinned_image_sets
    });
    (!same).then(|| after.name_any())
}

async fn sync(context: &Context, name: &str) -> Next {
    let Some(pool) = context.caches.pools.get(name) else { return Next::Wait };
    if pool.metadata.deletion_timestamp.is_some() {
        return Next::Wait;
    }
    let sets = context.caches.pinned.list();
    let (found, again) = match sets_of(&pool, &sets) {
        Ok(None) => return Next::Wait,
        Ok(Some(wanted)) => match write(context, &pool, wanted).await {
            Ok(()) => (Finding::no("", ""), false),
            Err(error) => (failed(name, &chain(&error)), true),
        },
        Err(error) => (failed(name, &chain(&error)), false),
    };
    match condition::set(context, name, &PoolCondition::PinnedImageSetsDegraded, found).await {
        Ok(()) if !again => Next::Wait,
        Ok(()) => Next::Retry,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "The pool does not say how its images are");
            Next::Retry
        }
    }
}

fn failed(pool: &str, cause: &str) -> Finding {
    warn!(pool, cause, "Cannot say which pinned images the pool is to have");
    Finding::yes("", &format!("Failed to populate pinned image sets for pool {pool}: {cause}"))
}

/// The sets for a pool, by name; nothing for a pool that selects everything.
fn sets_of(
    pool: &MachineConfigPool,
    sets: &[Arc<PinnedImageSet>],
) -> Result<Option<Vec<PinnedImageSetReference>>, selector::BadSelector> {
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

async fn write(
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
    let patched = apply::merge(&pools, &name, patch, Guard::Any).await;
    let patched = patched.map_err(|source| ActError::PinImages { pool: name.clone(), source })?;
    context.caches.pools.learn(patched);
    info!(pool = name, sets = count, "Pool has other pinned image sets");
    Ok(())
}
