//! Generates MachineConfigs from ContainerRuntimeConfigs.
//!
//! observe (caches) -> a MachineConfig for each selected pool, with its name -> finalizers and suffix on
//! the ContainerRuntimeConfig, then the MachineConfigs -> a condition.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use mco_api::{ContainerRuntimeConfig, MachineConfigPool, annotation};
use mco_cluster::{
    Api, CallError, Queue, Shutdown,
    apply::{self, Precondition},
    cache::Change,
    health::Work,
    queue::Reconciled,
    report::chain,
};
use mco_core::container_runtime::{
    self, BaseFiles, CONTAINERD_CONF, PoolFacts, RuntimePlan, RuntimePlanError, STORAGE_CONF,
    is_own_finalizer,
};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::{
    Context, container_engine,
    error::ActError,
    generated::{self, Applied},
    metrics::Action,
    render,
};

/// Time in which several changes gather.
const DELAY: Duration = Duration::from_millis(50);

/// Runs the controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    subscribe(&context, &queue);
    if !context.caches.ready(&shutdown).await || !context.caches.optional_ready(&shutdown).await {
        return;
    }
    let reconcile_config = |name: String| {
        let context = context.clone();
        async move {
            match reconcile(&context, &name).await {
                Ok(()) => Reconciled::Done,
                Err(error) => {
                    let error = chain(&error);
                    warn!(config = name, error, "Failed to reconcile ContainerRuntimeConfig");
                    Reconciled::Retry
                }
            }
        }
    };
    context.health.queue("container-runtime-configs", &queue, Work::Short);
    // One at a time: the number of a new config depends on those of the others.
    queue.run(1, &shutdown, reconcile_config).await;
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let all = {
        let (queue, context) = (queue.clone(), Arc::downgrade(context));
        move || {
            let Some(context) = context.upgrade() else { return };
            for config in context.caches.container_runtime_configs.list() {
                queue.add_after(config.name_any(), DELAY);
            }
        }
    };
    let (one, others) = (queue.clone(), all.clone());
    context.caches.container_runtime_configs.on_change(move |change| match change.after {
        Some(config) => one.add_after(config.name_any(), DELAY),
        // Another config may be waiting for the number.
        None => others(),
    });
    let controller_configs = all.clone();
    context.caches.controller_configs.on_change(move |_| controller_configs());
    let pools = all.clone();
    context.caches.pools.on_change(move |change| {
        if is_pool_affected(&change) {
            pools();
        }
    });
    let configs = all.clone();
    context.caches.configs.on_change(move |change| {
        let name = change.object().map(|config| config.name_any()).unwrap_or_default();
        if container_engine::is_base_config(&name) || is_own_finalizer(&name) {
            configs();
        }
    });
    context.caches.nodes.on_change(move |change| {
        if container_engine::is_affected(&change) {
            all();
        }
    });
}

fn is_pool_affected(change: &Change<'_, MachineConfigPool>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    before.metadata.labels != after.metadata.labels
        || before.spec.node_selector != after.spec.node_selector
}

async fn reconcile(context: &Context, name: &str) -> Result<(), ActError> {
    let Some(config) = context.caches.container_runtime_configs.get(name) else { return Ok(()) };
    if config.metadata.deletion_timestamp.is_some() {
        let all = config.finalizers().iter().filter(|one| is_own_finalizer(one)).cloned();
        return remove(context, &config, all.collect()).await;
    }
    let Some(controller_config) = context.own_controller_config() else { return Ok(()) };
    if let Some(why) = render::unfinished(&controller_config) {
        debug!(why, "Reconciling ContainerRuntimeConfigs postponed");
        return Ok(());
    }
    let plan = match decide(context, &config) {
        Ok(plan) => plan,
        Err(error) => {
            let text = match &error {
                // Compat: the reference has no `Error: ` before this text.
                RuntimePlanError::Limit(_) => chain(&error),
                RuntimePlanError::Selector(_)
                | RuntimePlanError::NoPool(_)
                | RuntimePlanError::Settings(_) => format!("Error: {}", chain(&error)),
            };
            // A config that selects no pool any more leaves nothing behind.
            if matches!(error, RuntimePlanError::NoPool(_)) {
                let all = config.finalizers().iter().filter(|one| is_own_finalizer(one)).cloned();
                remove(context, &config, all.collect()).await?;
            }
            return report(context, name, Err(&text)).await;
        }
    };
    let config = claim(context, &config, &plan).await?;
    for (pool, object) in &plan.configs {
        if generated::apply(context, object).await? == Applied::Written {
            info!(config = name, pool, "Applied ContainerRuntimeConfig");
            let now = context.clock.now();
            context.count_pool(pool, |metrics| {
                metrics.record_action(Action::ContainerRuntimeConfig, pool, now);
            });
        }
    }
    let is_stale = |one: &&String| {
        is_own_finalizer(one) && !plan.configs.iter().any(|(_, object)| object.name_any() == **one)
    };
    let stale: Vec<String> = config.finalizers().iter().filter(is_stale).cloned().collect();
    remove(context, &config, stale).await?;
    report(context, name, Ok(&plan)).await
}

fn decide(
    context: &Context,
    config: &ContainerRuntimeConfig,
) -> Result<RuntimePlan, RuntimePlanError> {
    let (pools, all) =
        (context.caches.pools.list(), context.caches.container_runtime_configs.list());
    let facts: Vec<PoolFacts<'_>> = pools
        .iter()
        .map(|pool| {
            let name = pool.name_any();
            let base = container_engine::base_config(context, &name);
            let file = |path| container_engine::text_of(base.as_deref(), path);
            PoolFacts {
                pool,
                base: BaseFiles {
                    storage_conf: file(STORAGE_CONF),
                    containerd_conf: file(CONTAINERD_CONF),
                },
                engines: container_engine::engines(context, [name.as_str()]),
                kubelet: container_engine::kubelet_delivery(context, &name),
            }
        })
        .collect();
    let all: Vec<&ContainerRuntimeConfig> = all.iter().map(|one| &**one).collect();
    let exists = |name: &str| context.caches.configs.get(name).is_some();
    container_runtime::plan(config, &all, &facts, exists, &context.build)
}

/// Writes the suffix and the finalizers before the MachineConfigs exist, so that none is left behind.
async fn claim(
    context: &Context,
    config: &Arc<ContainerRuntimeConfig>,
    plan: &RuntimePlan,
) -> Result<Arc<ContainerRuntimeConfig>, ActError> {
    let key = annotation::CONFIG_NAME_SUFFIX.name();
    let mut finalizers = config.finalizers().to_vec();
    for (_, object) in &plan.configs {
        if !finalizers.contains(&object.name_any()) {
            finalizers.push(object.name_any());
        }
    }
    if config.annotations().get(key) == Some(&plan.suffix) && finalizers == config.finalizers() {
        return Ok(config.clone());
    }
    let metadata = json!({"annotations": {key: plan.suffix}, "finalizers": finalizers});
    patch(context, config, json!({"metadata": metadata})).await
}

/// Deletes MachineConfigs of the config, and the finalizers that name them. A MachineConfig that another
/// object owns stays.
async fn remove(
    context: &Context,
    config: &Arc<ContainerRuntimeConfig>,
    names: Vec<String>,
) -> Result<(), ActError> {
    if names.is_empty() {
        return Ok(());
    }
    for name in &names {
        let found = context.caches.configs.get(name);
        let owner = found.as_ref().and_then(|found| found.owner_references().first().cloned());
        if owner.is_none_or(|owner| Some(owner.uid) == config.uid()) {
            generated::delete(context, name).await?;
        }
    }
    let left: Vec<&String> =
        config.finalizers().iter().filter(|one| !names.contains(one)).collect();
    patch(context, config, json!({"metadata": {"finalizers": left}})).await?;
    Ok(())
}

async fn patch(
    context: &Context,
    config: &ContainerRuntimeConfig,
    patch: serde_json::Value,
) -> Result<Arc<ContainerRuntimeConfig>, ActError> {
    let (name, version) = (config.name_any(), config.resource_version().unwrap_or_default());
    let api = Api::<ContainerRuntimeConfig>::all(context.client.clone());
    let patched = apply::merge(&api, &name, patch, Precondition::Unchanged(&version)).await;
    let patched = patched.map_err(|source| failure(&name, source))?;
    // The object ends with its last finalizer.
    if patched.metadata.deletion_timestamp.is_none() {
        context.caches.container_runtime_configs.learn(patched.clone());
    }
    Ok(Arc::new(patched))
}

/// Writes the condition, unless it says the same already.
async fn report(
    context: &Context,
    name: &str,
    result: Result<&RuntimePlan, &str>,
) -> Result<(), ActError> {
    let Some(config) = context.caches.container_runtime_configs.get(name) else { return Ok(()) };
    let status = config.status.clone().unwrap_or_default();
    let generation = config.metadata.generation.unwrap_or_default();
    let now = Time(context.clock.now());
    let conditions = container_runtime::conditions(&status.conditions, result, now);
    if conditions == status.conditions && status.observed_generation == generation {
        return Ok(());
    }
    if let Err(text) = result {
        warn!(config = name, text, "Rejected ContainerRuntimeConfig");
    }
    let status = json!({"observedGeneration": generation, "conditions": conditions});
    let version = config.resource_version().unwrap_or_default();
    let api = Api::<ContainerRuntimeConfig>::all(context.client.clone());
    let patched = apply::merge_status(&api, name, status, Precondition::Unchanged(&version)).await;
    let patched = patched.map_err(|source| failure(name, source))?;
    context.caches.container_runtime_configs.learn(patched);
    Ok(())
}

fn failure(name: &str, source: CallError) -> ActError {
    ActError::PatchSettings { kind: "ContainerRuntimeConfig", name: name.to_owned(), source }
}
