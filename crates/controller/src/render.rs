//! Renders the MachineConfigs of each pool into one config and sets it in the pool's spec.
//!
//! observe (caches) -> `mco_core::render` (pure) -> create the rendered config, patch the pool. If
//! rendering fails, the pool gets the condition `RenderDegraded` and is reconciled again when its
//! inputs change. Failed writes are retried.

mod restore;
mod run;

use std::sync::Arc;

use kube::ResourceExt as _;
use mco_api::{
    GROUP, MachineConfig, MachineConfigPool, VERSION, annotation,
    condition::{PoolCondition, reason},
    machine_config_pool::PoolConfiguration,
    meta::ObjectReference,
    selector,
};
use mco_cluster::{
    Api, CallError, Note, Queue, Reporter, Shutdown,
    apply::{self, Created, Precondition},
    cache::Change,
    health::Work,
    queue::Reconciled,
    report::chain,
};
use mco_core::{
    render::{OsImage, Rendered},
    status::Finding,
};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::{Context, caches::owner, condition, error::ActError, metrics::Action};

use self::run::{RenderFailure, RenderOutcome, RenderedObject};
pub(crate) use self::{restore::RenderedConfigs, run::unfinished};

/// Number of pools that are rendered at a time. A pool that waits for a slow remote server must not
/// delay others.
const RENDER_CONCURRENCY: usize = 16;

const RENDER_DEGRADED: PoolCondition = PoolCondition::RenderDegraded;

/// Runs the render controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    context.health.queue("render", &queue, Work::Short);
    subscribe(&context, &queue);
    if !context.caches.ready(&shutdown).await || !context.caches.optional_ready(&shutdown).await {
        return;
    }
    let reporter = context.reporter("rendercontroller");
    let reconcile_pool = |pool: String| {
        let (context, reporter) = (context.clone(), reporter.clone());
        async move { reconcile(&context, &reporter, &pool).await }
    };
    queue.run(RENDER_CONCURRENCY, &shutdown, reconcile_pool).await;
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let delay = context.delays.render;
    let (pools, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.pools.on_change(move |change| {
        if let Some(pool) = pool_to_render(&change) {
            pools.add_debounced(pool, delay);
        }
        if changes_worker_stream(&change) {
            for pool in known.list() {
                pools.add_debounced(pool.name_any(), delay);
            }
        }
    });
    let (configs, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.configs.on_change(move |change| {
        let pools = known.list();
        for pool in pools_of(&change, &pools) {
            configs.add_debounced(pool, delay);
        }
    });
    let (undecodable, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.configs.on_unreadable(move |_| {
        for pool in known.list() {
            undecodable.add_debounced(pool.name_any(), delay);
        }
    });
    let enqueue_all = || {
        let (queue, known) = (queue.clone(), context.caches.pools.clone());
        move || {
            for pool in known.list() {
                queue.add_debounced(pool.name_any(), delay);
            }
        }
    };
    let controller_configs = enqueue_all();
    context.caches.controller_configs.on_change(move |_| controller_configs());
    let settings = enqueue_all();
    context.caches.machine_configurations.on_change(move |_| settings());
    let kubelet_configs = enqueue_all();
    context.caches.kubelet_configs.on_change(move |_| kubelet_configs());
    let runtime_configs = enqueue_all();
    context.caches.container_runtime_configs.on_change(move |_| runtime_configs());
    let streams = enqueue_all();
    context.caches.os_image_streams.on_change(move |_| streams());
}

/// Returns the pool's name if a field changed that its rendered config depends on.
fn pool_to_render(change: &Change<'_, MachineConfigPool>) -> Option<String> {
    // A deleted pool is reconciled once more, to drop its cached configs.
    let Some(after) = change.after else { return change.before.map(|pool| pool.name_any()) };
    let same = change.before.is_some_and(|before| {
        let (before, after) = (&before.spec, &after.spec);
        before.machine_config_selector == after.machine_config_selector
            && before.configuration == after.configuration
            && before.os_image_stream == after.os_image_stream
    });
    (!same).then(|| after.name_any())
}

/// Returns true if the stream of pool `worker` changed: custom pools without a stream of their own
/// use it.
fn changes_worker_stream(change: &Change<'_, MachineConfigPool>) -> bool {
    let stream = |pool: Option<&Arc<MachineConfigPool>>| {
        pool.and_then(|pool| pool.spec.os_image_stream.clone())
    };
    change.object().is_some_and(|pool| pool.name_any() == "worker")
        && stream(change.before) != stream(change.after)
}

/// Returns the pools that select, or selected, a changed config.
fn pools_of(change: &Change<'_, MachineConfig>, pools: &[Arc<MachineConfigPool>]) -> Vec<String> {
    let Some(config) = change.object() else { return Vec::new() };
    if let Some(pool) = owner(config) {
        // A rendered config matters when it is deleted or edited: the pool may still need it.
        let edited = change.before.is_some_and(|before| {
            change.after.is_none_or(|after| {
                before.metadata.generation != after.metadata.generation
                    || before.uid() != after.uid()
            })
        });
        return if edited { vec![pool.to_owned()] } else { Vec::new() };
    }
    if let (Some(before), Some(after)) = (change.before, change.after)
        && before.spec == after.spec
        && before.metadata.labels == after.metadata.labels
        && build(before) == build(after)
    {
        return Vec::new();
    }
    let selects = |pool: &MachineConfigPool, config: &MachineConfig| {
        let selector = pool.spec.machine_config_selector.as_ref();
        selector.is_some_and(|selector| {
            selector::matches(selector, config.labels()).unwrap_or_default()
        })
    };
    let states = [change.before, change.after];
    let touched = |pool: &&Arc<MachineConfigPool>| {
        states.iter().flatten().any(|config| selects(pool, config))
    };
    pools.iter().filter(touched).map(|pool| pool.name_any()).collect()
}

/// Returns the build that generated the config. A config of another build is not rendered.
fn build(config: &MachineConfig) -> Option<&String> {
    config.annotations().get(annotation::GENERATED_BY_CONTROLLER_VERSION.name())
}

async fn reconcile(context: &Context, reporter: &Reporter, name: &str) -> Reconciled {
    let Some(pool) = context.caches.pools.get(name) else {
        context.rendered.remove_pool(name);
        return Reconciled::Done;
    };
    if pool.metadata.deletion_timestamp.is_some() {
        return Reconciled::Done;
    }
    let outcome = match run::run_render(context, &pool).await {
        Ok(RenderOutcome::Rendered(rendered)) => {
            apply_rendered(context, reporter, &pool, &rendered).await
        }
        Ok(RenderOutcome::SelectsEverything) => {
            let text = "This machineconfigpool is selecting all machineconfigs. \
                        A non-empty selector is required.";
            reporter.publish(&Note::warning(&*pool, "SelectingAll", text)).await;
            return Reconciled::Done;
        }
        Ok(RenderOutcome::NotReady(why)) => {
            debug!(pool = name, why, "Rendering postponed");
            return Reconciled::Done;
        }
        Ok(RenderOutcome::Skewed(why)) => {
            info!(pool = name, why, "Rendering postponed until all processes are of one build");
            let skew = Finding::no(reason::BUILD_SKEW, &why);
            condition::set(context, name, &RENDER_DEGRADED, skew).await
        }
        Err(RenderFailure::Inputs(cause)) => set_degraded(context, name, &cause).await,
        Err(RenderFailure::Transient(cause)) => {
            if let Err(error) = set_degraded(context, name, &cause).await {
                warn!(pool = name, error = chain(&error), "Failed to set RenderDegraded");
            }
            return Reconciled::Retry;
        }
        Err(RenderFailure::Api(error)) => Err(error),
    };
    match outcome {
        Ok(()) => Reconciled::Done,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "Failed to apply rendered config");
            Reconciled::Retry
        }
    }
}

async fn set_degraded(context: &Context, pool: &str, cause: &str) -> Result<(), ActError> {
    let text = format!("Failed to render configuration for pool {pool}: {cause}");
    warn!(pool, cause, "Failed to render pool");
    condition::set(context, pool, &RENDER_DEGRADED, Finding::yes("", &text)).await
}

async fn apply_rendered(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
    outcome: &RenderedObject,
) -> Result<(), ActError> {
    let (rendered, object) = (&outcome.rendered, &outcome.object);
    let name = rendered.name.as_str();
    let now = context.clock.now();
    context.count_pool(&pool.name_any(), |metrics| {
        metrics.set_os_image_override(&pool.name_any(), rendered.os_image == OsImage::Overridden);
        metrics.record_action(Action::Render, &pool.name_any(), now);
    });
    if let Some(known) = context.caches.configs.get(name) {
        restore::restore(context, reporter, &known, object).await?;
    } else {
        create_rendered(context, reporter, pool, outcome).await?;
    }
    context.rendered.store(&pool.name_any(), object);
    restore::restore_previous(context, reporter, &pool.name_any()).await?;
    let wanted = configuration(rendered);
    if pool.spec.configuration != wanted {
        let pools = Api::<MachineConfigPool>::all(context.client.clone());
        let patch = json!({"spec": {"configuration": wanted}});
        let patched = apply::merge(&pools, &pool.name_any(), patch, Precondition::Any).await;
        let patched = patched.map_err(|source| ActError::SetPoolConfig {
            pool: pool.name_any(),
            config: name.to_owned(),
            source,
        })?;
        context.caches.pools.learn(patched);
        info!(pool = pool.name_any(), config = name, "Set rendered config of pool");
    }
    condition::set(context, &pool.name_any(), &RENDER_DEGRADED, Finding::no("", "")).await
}

/// Creates the rendered config. The cache holds it before any watch delivers it: otherwise a node
/// that booted with it would be assigned to another pool.
async fn create_rendered(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
    RenderedObject { rendered, object, default_image }: &RenderedObject,
) -> Result<(), ActError> {
    let name = rendered.name.as_str().to_owned();
    let configs = Api::<MachineConfig>::all(context.client.clone());
    let created = apply::create(&configs, object).await;
    match created.map_err(|source| ActError::CreateConfig { name: name.clone(), source })? {
        Created::Now(made) => context.caches.configs.learn_new(*made),
        // The watch has not delivered the existing config yet.
        Created::Before => {
            let known = configs.get(&name).await.map_err(CallError::from);
            let known = known.map_err(|source| ActError::ReadConfig { name, source })?;
            context.caches.configs.learn_new(known.clone());
            return restore::restore(context, reporter, &known, object).await;
        }
    }
    if rendered.os_image == OsImage::Overridden {
        let text = overridden(object, default_image);
        reporter.publish(&Note::normal(object, "OSImageURLOverridden", text)).await;
    }
    let text = generated(object);
    reporter.publish(&Note::normal(pool, "RenderedConfigGenerated", text)).await;
    Ok(())
}

fn overridden(object: &MachineConfig, default_image: &str) -> String {
    format!(
        "OSImageURL was overridden via machineconfig in {} (was: {default_image} is: {})",
        object.name_any(),
        object.spec.os_image_url,
    )
}

fn generated(object: &MachineConfig) -> String {
    let value = |key: &str| object.annotations().get(key).cloned().unwrap_or_default();
    format!(
        "{} successfully generated (release version: {}, controller version: {})",
        object.name_any(),
        value(annotation::RELEASE_IMAGE_VERSION.name()),
        value(annotation::GENERATED_BY_CONTROLLER_VERSION.name()),
    )
}

/// Returns the `configuration` of a pool for a rendered config.
pub(crate) fn configuration(rendered: &Rendered) -> PoolConfiguration {
    let source = |name: &String| ObjectReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "MachineConfig".to_owned(),
        name: name.clone(),
        ..ObjectReference::default()
    };
    PoolConfiguration {
        rendered: ObjectReference {
            name: rendered.name.as_str().to_owned(),
            ..ObjectReference::default()
        },
        source: rendered.sources.iter().map(source).collect(),
    }
}
