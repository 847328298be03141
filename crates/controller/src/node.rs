//! Rolls the config of each pool out to its nodes, a few at a time, and writes the pool's status.
//!
//! observe (the node index) -> `NodeIndex::choose` and `NodeIndex::status` (pure) -> patch nodes and
//! status. This file takes no decisions.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfigPoolStatus, annotation, machine_config_pool,
    selector,
};
use mco_cluster::{
    Api, Note, Reporter, Shutdown,
    apply::{self, Precondition},
    error::Rejection,
    queue::Reconciled,
    report::chain,
};
use mco_core::{
    history,
    rollout::RolloutPlan,
    status::{Builder, ImageBuild, StatusContext, Streams},
};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::{
    Context,
    caches::LeanNode,
    control_plane::{MASTER, NotOurTurn, TurnGuard},
    error::ActError,
    image,
    metrics::Action,
    node_patch::NodePatch,
    rollout,
};

/// Number of pools that are reconciled at a time.
const POOL_CONCURRENCY: usize = 4;

/// Pause before a pool of the control plane tries again to start nodes.
const TURN_RETRY: Duration = Duration::from_secs(1);

/// Number of nodes that are patched at a time; the pool's maxUnavailable limits them already.
const PATCH_CONCURRENCY: usize = 32;

/// Runs the node controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let reporter = context.reporter("nodecontroller");
    let reconcile_pool = |pool: String| {
        let (context, reporter) = (context.clone(), reporter.clone());
        async move { reconcile(&context, &reporter, &pool).await }
    };
    tokio::join!(
        context.enqueuer.pools.run(POOL_CONCURRENCY, &shutdown, reconcile_pool),
        publish_annotation_changes(&context, &reporter, &shutdown)
    );
}

/// Publishes annotation changes of control plane nodes as events of the pool `master`.
async fn publish_annotation_changes(context: &Context, reporter: &Reporter, shutdown: &Shutdown) {
    let Some(mut notices) = context.enqueuer.take_notices() else { return };
    loop {
        let text = tokio::select! {
            () = shutdown.requested() => return,
            Some(text) = notices.recv() => text,
        };
        if let Some(pool) = context.caches.pools.get(MASTER) {
            reporter.publish(&Note::normal(&*pool, "AnnotationChange", text)).await;
        }
    }
}

async fn reconcile(context: &Context, reporter: &Reporter, name: &str) -> Reconciled {
    let Some(pool) = context.caches.pools.get(name) else { return Reconciled::Done };
    if pool.spec.configuration.rendered.name.is_empty() {
        debug!(pool = name, "Pool has no rendered config yet");
        return Reconciled::Done;
    }
    if pool.spec.node_selector.as_ref().is_some_and(selector::is_empty) {
        let text =
            "This machineconfigpool is selecting all nodes. A non-empty selector is required.";
        reporter.publish(&Note::warning(&*pool, "SelectingAll", text)).await;
        return Reconciled::Done;
    }
    let cleared = image::clear_stale_build(context, &pool).await;
    let started = start_updates(context, reporter, &pool).await;
    // The status is written even if starting updates failed.
    let updated = update_status(context, reporter, name).await;
    match cleared.and(started).and_then(|started| Ok((started, updated?))) {
        // The turn of the control plane is retried soon, and the pause of a status is longer.
        Ok((Reconciled::Done, next)) => next,
        Ok((started, _)) => started,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "Failed to reconcile pool");
            Reconciled::Retry
        }
    }
}

async fn start_updates(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
) -> Result<Reconciled, ActError> {
    let name = pool.name_any();
    let Ok((plan, turn)) = fetch_plan(context, pool).await else {
        debug!(pool = name, "Another pool of the control plane sets desired configs");
        return Ok(Reconciled::RequeueAfter(TURN_RETRY));
    };
    let Some(plan) = plan else { return Ok(Reconciled::Done) };
    if let Some(text) = plan.passed_over() {
        reporter.publish(&Note::normal(pool, "DeferringOperatorNodeUpdate", text)).await;
    }
    if !plan.starts.is_empty() {
        context.enqueuer.record_update_start(&name);
        let now = context.clock.now();
        context.count_pool(&name, |metrics| metrics.record_action(Action::Node, &name, now));
    }
    set_desired_configs(context, &plan).await?;
    // The patched nodes are in the node index.
    drop(turn);
    apply_pool_labels(context, &plan).await?;
    if let Some(text) = plan.started() {
        reporter.publish(&Note::normal(pool, "SetDesiredConfig", text)).await;
    }
    Ok(Reconciled::Done)
}

/// Plans the roll-out and records its verdict on the nodes that wait. Lists the operator's pods if
/// the plan depends on them. Takes the turn of the control plane if the plan starts nodes.
async fn fetch_plan<'a>(
    context: &'a Context,
    pool: &MachineConfigPool,
) -> Result<(Option<RolloutPlan>, Option<TurnGuard<'a>>), NotOurTurn> {
    let name = pool.name_any();
    // The operator's node matters only if a node in service is about to update.
    let is_disrupted = name == MASTER
        && rollout::plan(context, pool, None).1.as_ref().is_some_and(rollout::disrupts);
    let operator_node = if is_disrupted { fetch_operator_node(context).await } else { None };
    let ((verdict, plan), turn) = context.control_plane_turn.choose(
        &name,
        || rollout::plan(context, pool, operator_node),
        |(_, plan)| plan.as_ref().is_some_and(|plan| !plan.starts.is_empty()),
    )?;
    let is_new = context.enqueuer.node_index().set_decision(&name, verdict);
    if is_new {
        context.enqueuer.record_new_verdict(&name, context.delays.node_status);
    }
    Ok((plan, turn))
}

/// Returns the node that the operator runs on, if the operator has exactly one pod.
async fn fetch_operator_node(context: &Context) -> Option<String> {
    let api = Api::<Pod>::own(context.client.clone());
    let params = ListParams::default().labels("k8s-app=machine-config-operator");
    match api.list(&params).await {
        Ok(pods) => match pods.items.as_slice() {
            [pod] => pod.spec.as_ref()?.node_name.clone(),
            _ => None,
        },
        Err(error) => {
            warn!(
                error = chain(&error),
                "Failed to list the operator's pods; its node does not update last"
            );
            None
        }
    }
}

/// Sets the desired config of the chosen nodes. The patched nodes go into the cache at once, so
/// that the next choice counts them before the watch delivers them.
async fn set_desired_configs(context: &Context, plan: &RolloutPlan) -> Result<(), ActError> {
    let writes: Vec<_> =
        plan.starts.iter().map(|node| set_desired_config(context, node, plan)).collect();
    let outcomes: Vec<_> = stream::iter(writes).buffer_unordered(PATCH_CONCURRENCY).collect().await;
    outcomes.into_iter().collect()
}

async fn set_desired_config(
    context: &Context,
    name: &str,
    plan: &RolloutPlan,
) -> Result<(), ActError> {
    let Some(node) = context.caches.nodes.get(name) else { return Ok(()) };
    let patch = NodePatch::for_update(context, &node, &plan.target);
    let outcome = match patch.apply(context, &node).await {
        // Another client wrote to the node. The desired config is right all the same; the taint can
        // wait.
        Err(error) if error.rejection() == Some(Rejection::Conflict) => {
            patch.apply_without_taints(context, name).await
        }
        outcome => outcome,
    };
    outcome.map_err(|source| {
        let (node, config) = (name.to_owned(), plan.target.clone());
        ActError::SetDesiredConfig { node, config, source }
    })?;
    info!(node = name, config = plan.target, "Set desired config of node");
    Ok(())
}

/// Puts the labels of their pool on nodes that booted for it, once.
async fn apply_pool_labels(context: &Context, plan: &RolloutPlan) -> Result<(), ActError> {
    let api = Api::<LeanNode>::all(context.client.clone());
    for (node, labels) in &plan.labels {
        let marker = annotation::CUSTOM_POOL_LABELS_APPLIED.name();
        let patch = json!({"metadata": {"labels": labels, "annotations": {marker: ""}}});
        let patched = apply::merge(&api, node, patch, Precondition::Any).await;
        let named = |source| ActError::LabelNode { node: node.clone(), source };
        context.caches.nodes.learn(patched.map_err(named)?.into());
        info!(node, "Set labels of the pool that the node booted for");
    }
    Ok(())
}

/// Writes the pool's status if it changed.
///
/// Statuses that differ only in counters are not written more often than the delay `status` allows.
async fn update_status(
    context: &Context,
    reporter: &Reporter,
    name: &str,
) -> Result<Reconciled, ActError> {
    let Some(pool) = context.caches.pools.get(name) else { return Ok(Reconciled::Done) };
    let now = Time(context.clock.now());
    let controller_config = context.caches.controller_config();
    let os_config = context.caches.machine_os_config_of(name);
    let build = os_config.as_ref().and_then(|config| image::current_build(context, config, &pool));
    let offered = context.caches.os_image_stream();
    let around = StatusContext {
        controller_config: controller_config.as_deref(),
        image_build: ImageBuild {
            config: os_config.as_deref(),
            build: build.as_deref(),
            builder: if build.is_some() { Builder::Present } else { Builder::Absent },
        },
        streams: offered.as_deref().map(|offered| Streams {
            offered: Some(offered),
            images: image::os_images(context, &pool),
        }),
        ..StatusContext::default()
    };
    let status = context.enqueuer.node_index().status(&pool, &around, &now);
    let Some(status) = status else { return Ok(Reconciled::Done) };
    context.count_pool(name, |metrics| metrics.set_pool(name, &status, now.0));
    let before = pool.status.clone().unwrap_or_default();
    if status == before {
        return Ok(Reconciled::Done);
    }
    let rest = context.enqueuer.until_counter_write(name, context.delays.status);
    if !rest.is_zero() && without_counters(&before) == without_counters(&status) {
        return Ok(Reconciled::RequeueAfter(rest));
    }
    let version = pool.resource_version().unwrap_or_default();
    let api = Api::<MachineConfigPool>::all(context.client.clone());
    let patch = status_patch(&json!(before), json!(status));
    let patched = apply::merge_status(&api, name, patch, Precondition::Unchanged(&version)).await;
    let patched =
        patched.map_err(|source| ActError::PoolStatus { pool: name.to_owned(), source })?;
    context.caches.pools.learn(patched);
    context.enqueuer.record_status_write(name);
    let config = &status.configuration.rendered.name;
    if before.configuration.rendered.name != *config {
        let text = format!("Pool {name} has completed update to MachineConfig {config}");
        reporter.publish(&Note::normal(&*pool, "Completed", text)).await;
        record_duration(context, &before, config, &now).await;
    }
    Ok(Reconciled::Done)
}

/// Records on the rendered config how long its roll-out took, for the history of the pool. A failure is
/// only logged: the roll-out is complete without it.
async fn record_duration(
    context: &Context,
    before: &MachineConfigPoolStatus,
    config: &str,
    now: &Time,
) {
    let known = context.caches.configs.get(config);
    let created = known.as_ref().and_then(|known| known.metadata.creation_timestamp.as_ref());
    let Some(seconds) = history::rollout_seconds(before, created, now) else { return };
    let api = Api::<PartialObjectMeta<MachineConfig>>::all(context.client.clone());
    let key = annotation::ROLLOUT_SECONDS.name().to_owned();
    let changes = [(key, Some(seconds.to_string()))].into();
    if let Err(error) = apply::patch_annotations(&api, config, &changes).await {
        warn!(config, error = chain(&error), "Failed to record the duration of a roll-out");
    }
}

/// Returns a merge patch that leaves exactly `after`: members that only `before` has are null.
fn status_patch(before: &Value, mut after: Value) -> Value {
    if let (Value::Object(before), Value::Object(after)) = (before, &mut after) {
        for (key, old) in before {
            match after.get_mut(key) {
                Some(new) => *new = status_patch(old, new.take()),
                None => {
                    after.insert(key.clone(), Value::Null);
                }
            }
        }
    }
    after
}

/// Returns the status with all counters zeroed.
fn without_counters(status: &MachineConfigPoolStatus) -> MachineConfigPoolStatus {
    let synchronizers = status.pool_synchronizers_status.iter().map(|one| {
        let pool_synchronizer_type = one.pool_synchronizer_type.clone();
        machine_config_pool::PoolSynchronizerStatus {
            pool_synchronizer_type,
            machine_count: 0,
            updated_machine_count: 0,
            ready_machine_count: 0,
            available_machine_count: 0,
            unavailable_machine_count: 0,
            observed_generation: one.observed_generation,
        }
    });
    MachineConfigPoolStatus {
        machine_count: 0,
        updated_machine_count: 0,
        ready_machine_count: 0,
        unavailable_machine_count: 0,
        degraded_machine_count: 0,
        pool_synchronizers_status: synchronizers.collect(),
        ..status.clone()
    }
}
