//! Renders each pool's MachineConfigs into one and points the pool at it.
//!
//! observe (caches) -> `mco_core::render` (pure) -> create the rendered config, patch the pool.
//! A failure to render is a condition of the pool and waits for its inputs to change; a failure to
//! write is tried again.

mod restore;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt as _};
use mco_api::{
    ControllerConfig, GROUP, MachineConfig, MachineConfigPool, VERSION, annotation,
    condition::{ControllerConfigConditionType as Phase, PoolCondition},
    machine_config_pool::PoolConfiguration,
    meta::ObjectReference,
    selector,
};
use mco_cluster::{
    CallError, Note, Queue, Reporter, Shutdown,
    apply::{self, Created, Guard},
    cache::Change,
    queue::Next,
    report::chain,
};
use mco_core::{
    render::{self, BaseImages, Origin, Rendered, Selection},
    status::{self, Finding},
};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::{Context, caches::owner, error::ActError};

pub(crate) use self::restore::Sound;

/// How many pools are rendered at a time.
const WIDTH: usize = 2;

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    listen(&context, &queue);
    if !context.caches.ready(&shutdown).await {
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
    let pools = queue.clone();
    context.caches.pools.on_change(move |change| {
        if let Some(pool) = pool_to_render(&change) {
            pools.settle(pool, delay);
        }
    });
    let (configs, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.configs.on_change(move |change| {
        let pools = known.list();
        for pool in pools_of(&change, &pools) {
            configs.settle(pool, delay);
        }
    });
    let (cluster, known) = (queue.clone(), context.caches.pools.clone());
    context.caches.cluster.on_change(move |_| {
        for pool in known.list() {
            cluster.settle(pool.name_any(), delay);
        }
    });
}

/// The pool, if something changed that its config depends on.
fn pool_to_render(change: &Change<'_, MachineConfigPool>) -> Option<String> {
    let after = change.after?;
    let same = change.before.is_some_and(|before| {
        let (before, after) = (&before.spec, &after.spec);
        before.machine_config_selector == after.machine_config_selector
            && before.configuration == after.configuration
            && before.os_image_stream == after.os_image_stream
    });
    (!same).then(|| after.name_any())
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
    let Some(pool) = context.caches.pools.get(name) else { return Next::Wait };
    if pool.metadata.deletion_timestamp.is_some() {
        return Next::Wait;
    }
    let outcome = match decide(context, &pool) {
        Ok(Decision::Selecting(rendered)) => act(context, reporter, &pool, &rendered).await,
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
        Err(cause) => {
            let text = format!("Failed to render configuration for pool {name}: {cause}");
            warn!(pool = name, cause, "Cannot render");
            set_condition(context, name, Finding::yes("", &text)).await
        }
    };
    match outcome {
        Ok(()) => Next::Wait,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "Rendering is not done");
            Next::Retry
        }
    }
}

enum Decision {
    Selecting(Box<(Rendered, MachineConfig)>),
    SelectsEverything,
    NotYet(String),
}

/// Everything that can be said without writing: the rendered config, or why there is none.
fn decide(context: &Context, pool: &MachineConfigPool) -> Result<Decision, String> {
    let configs = context.caches.configs.list();
    let configs = match render::select(pool, configs.iter().map(|config| &**config)) {
        Ok(Selection::Configs(configs)) => configs,
        Ok(Selection::Everything) => return Ok(Decision::SelectsEverything),
        Err(error) => return Err(chain(&error)),
    };
    let Some(cluster) = context.caches.controller_config() else {
        return Ok(Decision::NotYet("there is no ControllerConfig".to_owned()));
    };
    if let Some(why) = unfinished(&cluster) {
        return Ok(Decision::NotYet(why));
    }
    let marks = cluster.annotations();
    let by = marks.get(annotation::GENERATED_BY_VERSION.name()).map(String::as_str);
    render::check_skew(&context.build, by, &configs).map_err(|error| chain(&error))?;

    let images = BaseImages {
        os: cluster.spec.base_os_container_image.clone(),
        extensions: cluster.spec.base_os_extensions_container_image.clone(),
    };
    let name = pool.name_any().parse().map_err(|error| chain(&error))?;
    let rendered = render::pool(&name, &configs, &images).map_err(|error| chain(&error))?;
    let origin = Origin {
        controller_version: context.build.hash.clone(),
        release_version: marks
            .get(annotation::RELEASE_IMAGE_VERSION.name())
            .cloned()
            .unwrap_or_default(),
    };
    let object = rendered.object(pool, &origin).map_err(|error| chain(&error))?;
    let warning = rendered.check_size(&object).map_err(|error| chain(&error))?;
    if let Some(warning) = warning {
        warn!(config = %rendered.name, size = warning.size, "The rendered config is close to the limit");
    }
    Ok(Decision::Selecting(Box::new((rendered, object))))
}

/// Why the base configs may still change, if they may.
fn unfinished(cluster: &ControllerConfig) -> Option<String> {
    let name = cluster.name_any();
    let status = cluster.status.clone().unwrap_or_default();
    let (seen, wanted) = (status.observed_generation, cluster.metadata.generation.unwrap_or(0));
    if seen != wanted {
        return Some(format!(
            "status for ControllerConfig {name} is being reported for {seen}, expecting it for {wanted}"
        ));
    }
    let holds = |kind: &Phase| {
        let found = status.conditions.iter().find(|condition| condition.kind == kind.as_str());
        found.is_some_and(|condition| condition.status == "True")
    };
    let completed = holds(&Phase::TemplateControllerCompleted);
    let running = holds(&Phase::TemplateControllerRunning);
    let failing = holds(&Phase::TemplateControllerFailing);
    (!completed || running || failing).then(|| {
        format!(
            "ControllerConfig has not completed: \
             completed({completed}) running({running}) failing({failing})"
        )
    })
}

async fn act(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
    decided: &(Rendered, MachineConfig),
) -> Result<(), ActError> {
    let (rendered, object) = decided;
    let name = rendered.name.as_str();
    if let Some(known) = context.caches.configs.get(name) {
        restore::restore(context, reporter, &known, object).await?;
    } else {
        let configs = Api::<MachineConfig>::all(context.client.clone());
        let created = apply::create(&configs, object)
            .await
            .map_err(|source| ActError::CreateConfig { name: name.to_owned(), source })?;
        if created == Created::Now {
            reporter
                .publish(&Note::normal(pool, "RenderedConfigGenerated", generated(object)))
                .await;
        }
    }
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
    set_condition(context, &pool.name_any(), Finding::no("", "")).await
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

fn configuration(rendered: &Rendered) -> PoolConfiguration {
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

/// Writes `RenderDegraded`, unless the pool says so already.
async fn set_condition(context: &Context, name: &str, found: Finding) -> Result<(), ActError> {
    let Some(pool) = context.caches.pools.get(name) else { return Ok(()) };
    let before = pool.status.clone().unwrap_or_default().conditions;
    let mut conditions = before.clone();
    let now = Time(context.clock.now());
    status::set(&mut conditions, &PoolCondition::RenderDegraded, found, &now);
    if conditions == before {
        return Ok(());
    }
    // The list is written as a whole, and the node controller writes other conditions in it.
    let version = pool.resource_version().unwrap_or_default();
    let pools = Api::<MachineConfigPool>::all(context.client.clone());
    let patch = json!({"conditions": conditions});
    let patched = apply::merge_status(&pools, name, patch, Guard::Unchanged(&version)).await;
    let named = |source: CallError| ActError::PoolStatus { pool: name.to_owned(), source };
    context.caches.pools.learn(patched.map_err(named)?);
    Ok(())
}
