//! Reports objects that have no effect, because no controller of this process handles them: each
//! gets a condition `Failure` that says so.
//!
//! No images are built for a MachineOSConfig. Without the condition an administrator would wait for
//! its effect.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use mco_api::{MachineOSConfig, condition::SettingsCondition};
use mco_cluster::{
    Api, CallError, Queue, Shutdown,
    apply::{self, Precondition},
    queue::Reconciled,
    report::chain,
};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::Context;

/// Reason of the condition.
const REASON: &str = "NotImplemented";

/// Time in which several changes of an object gather.
const DELAY: Duration = Duration::from_millis(150);

const MACHINE_OS_CONFIG: &str = "Error: this MachineOSConfig has no effect: no process builds OS \
    images in this cluster. Nodes that run a built image keep it, and nodes without one follow \
    their pool's config";

/// Runs until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    let (objects, cache) = (queue.clone(), &context.caches.machine_os_configs);
    cache.on_change(move |change| {
        if let Some(object) = change.after {
            objects.add_debounced(object.name_any(), DELAY);
        }
    });
    // A build that exists is in the cache before its MachineOSConfig is judged.
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let context = &context;
    queue.run(1, &shutdown, |name| async move { reconcile(context, &name).await }).await;
}

async fn reconcile(context: &Context, name: &str) -> Reconciled {
    let cache = &context.caches.machine_os_configs;
    let Some(config) = cache.get(name) else { return Reconciled::Done };
    let text = is_unbuilt(context, &config).then_some(MACHINE_OS_CONFIG);
    match report(context, &config, text).await {
        Ok(Some(patched)) => cache.learn(patched),
        Ok(None) => {}
        Err(error) => {
            warn!(
                config = name,
                error = chain(&error),
                "Failed to report an unused MachineOSConfig"
            );
            return Reconciled::Retry;
        }
    }
    Reconciled::Done
}

/// Returns true if no process has created a MachineOSBuild for a MachineOSConfig.
fn is_unbuilt(context: &Context, config: &MachineOSConfig) -> bool {
    let builds = context.caches.machine_os_builds.list();
    !builds.iter().any(|build| build.spec.machine_os_config.name == config.name_any())
}

/// Sets the condition of one object to this text, or removes it; returns the patched object, if
/// there was something to change.
async fn report(
    context: &Context,
    object: &MachineOSConfig,
    text: Option<&str>,
) -> Result<Option<MachineOSConfig>, CallError> {
    let (name, generation) = (object.name_any(), object.metadata.generation.unwrap_or_default());
    let status = json!(object);
    let before = status.pointer("/status/conditions").and_then(Value::as_array);
    let before = before.cloned().unwrap_or_default();
    let observed = status.pointer("/status/observedGeneration").and_then(Value::as_i64);
    let known = before.iter().find(|condition| is_ours(condition));
    let known = known.and_then(|condition| condition.get("message")?.as_str());
    if known == text && (text.is_none() || observed == Some(generation)) {
        return Ok(None);
    }
    let mut conditions = before.clone();
    conditions.retain(|condition| !is_ours(condition));
    conditions.extend(text.map(|text| {
        json!({
            "type": SettingsCondition::Failure, "status": "True", "reason": REASON, "message": text,
            "lastTransitionTime": Time(context.clock.now()),
        })
    }));
    let patch = json!({"observedGeneration": generation, "conditions": conditions});
    let api = Api::<MachineOSConfig>::all(context.client.clone());
    let version = object.resource_version().unwrap_or_default();
    let patched =
        apply::merge_status(&api, &name, patch, Precondition::Unchanged(&version)).await?;
    info!(config = name, text, "Reported the effect of MachineOSConfig");
    Ok(Some(patched))
}

/// Returns true if this controller wrote the condition.
///
/// Compat: the type is the reference's for a refused ContainerRuntimeConfig, whose
/// message begins with `Error: `.
fn is_ours(condition: &Value) -> bool {
    let is = |key: &str, value: &str| condition.get(key).and_then(Value::as_str) == Some(value);
    is("type", SettingsCondition::Failure.as_str()) && is("reason", REASON)
}
