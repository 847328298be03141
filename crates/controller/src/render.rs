//! Renders each pool's MachineConfigs into one and points the pool at it.
//!
//! observe (caches) -> `mco_core::render` (pure) -> create the rendered config, patch the pool.
//! A failure to render is a condition of the pool and waits for its inputs to change; a failure to
//! write is tried again.

mod decide;
mod restore;

use std::sync::Arc;

use kube::{Api, ResourceExt as _};
use mco_api::{
    GROUP, MachineConfig, MachineConfigPool, VERSION, annotation, condition::PoolCondition,
    machine_config_pool::PoolConfiguration, meta::ObjectReference, selector,
};
use mco_cluster::{
    CallError, Note, Queue, Reporter, Shutdown,
    apply::{self, Created, Guard},
    cache::Change,
    queue::Next,
    report::chain,
};
use mco_core::{
    render::{OsImage, Rendered},
    status::Finding,
};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::{Context, caches::owner, condition, error::ActError, metrics::Action};

use self::decide::{Decision, Outcome, Trouble};
pub(crate) use self::restore::Sound;

/// How many pools are rendered at a time. One that waits for a slow server must not hold up others.
const WIDTH: usize = 16;

const RENDER_DEGRADED: PoolCondition = PoolCondition::RenderDegraded;

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    listen(&context, &queue);
    if !context.caches.ready(&shutdown).await || !context.caches.optional(&shutdown).await {
        return;
    }
    let reporter = context.reporter("rendercontroller");
    let look = |pool: String| {
        let (context, reporter) = (context.clone(), reporter.clone());
        async move { sync(&context, &reporter, &pool).await }
    };
    queue.run(WIDTH, &shutdown, look).await;
}

fn listen(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let delay = context.settle.render;
    let (pools, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.pools.on_change(move |change| {
        if let Some(pool) = pool_to_render(&change) {
            pools.settle(pool, delay);
        }
        if changes_the_workers_stream(&change) {
            for pool in known.list() {
                pools.settle(pool.name_any(), delay);
            }
        }
    });
    let (configs, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.configs.on_change(move |change| {
        let pools = known.list();
        for pool in pools_of(&change, &pools) {
            configs.settle(pool, delay);
        }
    });
    let everything = || {
        let (queue, known) = (queue.clone(), context.caches.pools.clone());
        move || {
            for pool in known.list() {
                queue.settle(pool.name_any(), delay);
            }
        }
    };
    let cluster = everything();
    context.caches.cluster.on_change(move |_| cluster());
    let settings = everything();
    context.caches.settings.on_change(move |_| settings());
    let streams = everything();
    context.caches.streams.on_change(move |_| streams());
}

/// The pool, if something changed that its config depends on.
fn pool_to_render(change: &Change<'_, MachineConfigPool>) -> Option<String> {
    // One that is gone is looked at once more, to be forgotten.
    let Some(after) = change.after else { return change.before.map(|pool| pool.name_any()) };
    let same = change.before.is_some_and(|before| {
        let (before, after) = (&before.spec, &after.spec);
        before.machine_config_selector == after.machine_config_selector
            && before.configuration == after.configuration
            && before.os_image_stream == after.os_image_stream
    });
    (!same).then(|| after.name_any())
}

/// Whether custom pools, which have the stream of the workers unless they say otherwise, get another.
fn changes_the_workers_stream(change: &Change<'_, MachineConfigPool>) -> bool {
    let stream = |pool: Option<&Arc<MachineConfigPool>>| {
        pool.and_then(|pool| pool.spec.os_image_stream.clone())
    };
    change.object().is_some_and(|pool| pool.name_any() == "worker")
        && stream(change.before) != stream(change.after)
}

/// The pools that a changed config is, or was, part of.
fn pools_of(change: &Change<'_, MachineConfig>, pools: &[Arc<MachineConfigPool>]) -> Vec<String> {
    let Some(config) = change.object() else { return Vec::new() };
    if let Some(pool) = owner(config) {
        // A rendered config matters when it goes or is edited: the pool may still need it.
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

async fn sync(context: &Context, reporter: &Reporter, name: &str) -> Next {
    let Some(pool) = context.caches.pools.get(name) else {
        context.sound.forget(name);
        return Next::Wait;
    };
    if pool.metadata.deletion_timestamp.is_some() {
        return Next::Wait;
    }
    let outcome = match decide::decide(context, &pool).await {
        Ok(Decision::Render(outcome)) => act(context, reporter, &pool, &outcome).await,
        Ok(Decision::SelectsEverything) => {
            let text = "This machineconfigpool is selecting all machineconfigs. \
                        A non-empty selector is required.";
            reporter.publish(&Note::warning(&*pool, "SelectingAll", text)).await;
            return Next::Wait;
        }
        Ok(Decision::NotYet(why)) => {
            debug!(pool = name, why, "Not rendering yet");
            return Next::Wait;
        }
        Err(Trouble::Inputs(cause)) => degrade(context, name, &cause).await,
        Err(Trouble::Passing(cause)) => {
            if let Err(error) = degrade(context, name, &cause).await {
                warn!(pool = name, error = chain(&error), "The pool does not say so yet");
            }
            return Next::Retry;
        }
        Err(Trouble::Call(error)) => Err(error),
    };
    match outcome {
        Ok(()) => Next::Wait,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "Rendering is not done");
            Next::Retry
        }
    }
}

async fn degrade(context: &Context, pool: &str, cause: &str) -> Result<(), ActError> {
    let text = format!("Failed to render configuration for pool {pool}: {cause}");
    warn!(pool, cause, "Cannot render");
    condition::set(context, pool, &RENDER_DEGRADED, Finding::yes("", &text)).await
}

async fn act(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
    outcome: &Outcome,
) -> Result<(), ActError> {
    let (rendered, object) = (&outcome.rendered, &outcome.object);
    let name = rendered.name.as_str();
    let now = context.clock.now();
    context.count_pool(&pool.name_any(), |metrics| {
        metrics.os_image(&pool.name_any(), rendered.os_image == OsImage::Overridden);
        metrics.acted(Action::Render, &pool.name_any(), now);
    });
    if let Some(known) = context.caches.configs.get(name) {
        restore::restore(context, reporter, &known, object).await?;
    } else {
        make(context, reporter, pool, outcome).await?;
    }
    context.sound.keep(&pool.name_any(), object);
    restore::restore_earlier(context, reporter, &pool.name_any()).await?;
    let wanted = configuration(rendered);
    if pool.spec.configuration != wanted {
        let pools = Api::<MachineConfigPool>::all(context.client.clone());
        let patch = json!({"spec": {"configuration": wanted}});
        let patched = apply::merge(&pools, &pool.name_any(), patch, Guard::Any).await;
        let patched = patched.map_err(|source| ActError::TargetPool {
            pool: pool.name_any(),
            config: name.to_owned(),
            source,
        })?;
        context.caches.pools.learn(patched);
        info!(pool = pool.name_any(), config = name, "Pool has a new config");
    }
    condition::set(context, &pool.name_any(), &RENDER_DEGRADED, Finding::no("", "")).await
}

/// Makes the config. It is in the cache before anybody can hear of it: a node that was booted with it
/// would be taken for another pool's.
async fn make(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
    Outcome { rendered, object, cluster_image }: &Outcome,
) -> Result<(), ActError> {
    let name = rendered.name.as_str().to_owned();
    let configs = Api::<MachineConfig>::all(context.client.clone());
    let created = apply::create(&configs, object).await;
    match created.map_err(|source| ActError::CreateConfig { name: name.clone(), source })? {
        Created::Now(made) => context.caches.configs.learn_new(*made),
        // The watch has yet to tell of it.
        Created::Before => {
            let known = configs.get(&name).await.map_err(CallError::from);
            let known = known.map_err(|source| ActError::ReadConfig { name, source })?;
            context.caches.configs.learn_new(known.clone());
            return restore::restore(context, reporter, &known, object).await;
        }
    }
    if rendered.os_image == OsImage::Overridden {
        let text = overridden(object, cluster_image);
        reporter.publish(&Note::normal(object, "OSImageURLOverridden", text)).await;
    }
    let text = generated(object);
    reporter.publish(&Note::normal(pool, "RenderedConfigGenerated", text)).await;
    Ok(())
}

fn overridden(object: &MachineConfig, cluster_image: &str) -> String {
    format!(
        "OSImageURL was overridden via machineconfig in {} (was: {cluster_image} is: {})",
        object.name_any(),
        object.spec.os_image_url,
    )
}

fn generated(object: &MachineConfig) -> String {
    let mark = |key: &str| object.annotations().get(key).cloned().unwrap_or_default();
    format!(
        "{} successfully generated (release version: {}, controller version: {})",
        object.name_any(),
        mark(annotation::RELEASE_IMAGE_VERSION.name()),
        mark(annotation::GENERATED_BY_CONTROLLER_VERSION.name()),
    )
}

/// What a pool says of its config.
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
