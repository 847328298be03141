//! Moves the nodes of each pool to the pool's config, a few at a time, and says how far it is.
//!
//! observe (the board) -> `Roster::choose` and `Roster::status` (pure) -> patch nodes and status.
//! Nothing in this file decides anything.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, ResourceExt as _};
use mco_api::{
    MachineConfigPool, MachineConfigPoolStatus, annotation, machine_config_pool, selector,
};
use mco_cluster::{
    Note, Reporter, Shutdown,
    apply::{self, Guard},
    error::Refused,
    queue::Next,
    report::chain,
};
use mco_core::{
    rollout::RolloutPlan,
    status::{Around, ImageBuild, Streams},
};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::{
    Context,
    caches::LeanNode,
    error::ActError,
    image,
    mark::Marks,
    metrics::Action,
    rollout::{self, CONTROL_PLANE, MASTER},
};

/// How many pools are looked at at a time.
const WIDTH: usize = 4;

/// How many nodes are told at a time; they are within the pool's limit already.
const WRITES: usize = 32;

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let reporter = context.reporter("nodecontroller");
    let look = |pool: String| {
        let (context, reporter) = (context.clone(), reporter.clone());
        async move { sync(&context, &reporter, &pool).await }
    };
    tokio::join!(
        context.board.pools.run(WIDTH, &shutdown, look),
        announce(&context, &reporter, &shutdown)
    );
}

/// Says of the control plane's nodes what their annotations say.
async fn announce(context: &Context, reporter: &Reporter, shutdown: &Shutdown) {
    let Some(mut notices) = context.board.notices() else { return };
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

async fn sync(context: &Context, reporter: &Reporter, name: &str) -> Next {
    let Some(pool) = context.caches.pools.get(name) else { return Next::Wait };
    if pool.spec.configuration.rendered.name.is_empty() {
        debug!(pool = name, "Pool has no config yet");
        return Next::Wait;
    }
    if pool.spec.node_selector.as_ref().is_some_and(selector::is_empty) {
        let text =
            "This machineconfigpool is selecting all nodes. A non-empty selector is required.";
        reporter.publish(&Note::warning(&*pool, "SelectingAll", text)).await;
        return Next::Wait;
    }
    let forgotten = image::forget_stale(context, &pool).await;
    let started = start(context, reporter, &pool).await.and(forgotten);
    // Whatever became of the starts, the status is told as it is.
    let told = tell(context, reporter, name).await;
    match started.and(told) {
        Ok(next) => next,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "Pool is not done");
            Next::Retry
        }
    }
}

async fn start(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
) -> Result<(), ActError> {
    let name = pool.name_any();
    // Masters and arbiter are chosen for in turn, each with the other's last choice on the board.
    let turn = CONTROL_PLANE.contains(&name.as_str()).then(|| context.control_plane.lock());
    let _turn = match turn {
        Some(turn) => Some(turn.await),
        None => None,
    };
    let Some(plan) = rollout::plan(context, pool).await else { return Ok(()) };
    if let Some(text) = plan.passed_over() {
        reporter.publish(&Note::normal(pool, "DeferringOperatorNodeUpdate", text)).await;
    }
    if !plan.starts.is_empty() {
        context.board.started(&name);
        let now = context.clock.now();
        context.count_pool(&name, |metrics| metrics.acted(Action::Node, &name, now));
    }
    act(context, &plan).await?;
    label(context, &plan).await?;
    if let Some(text) = plan.started() {
        reporter.publish(&Note::normal(pool, "SetDesiredConfig", text)).await;
    }
    Ok(())
}

/// Tells the nodes their config. What comes back goes into the cache at once, so that the next choice
/// counts them even before the watch tells of it.
async fn act(context: &Context, plan: &RolloutPlan) -> Result<(), ActError> {
    let writes: Vec<_> = plan.starts.iter().map(|node| target(context, node, plan)).collect();
    let outcomes: Vec<_> = stream::iter(writes).buffer_unordered(WRITES).collect().await;
    outcomes.into_iter().collect()
}

async fn target(context: &Context, name: &str, plan: &RolloutPlan) -> Result<(), ActError> {
    let Some(node) = context.caches.nodes.get(name) else { return Ok(()) };
    let marks = Marks::of_start(context, &node, &plan.target);
    let outcome = match marks.write(context, &node).await {
        // Somebody else wrote to the node. Its config is right all the same; the taint can wait.
        Err(error) if error.refused() == Some(Refused::Conflict) => {
            marks.write_unguarded(context, name).await
        }
        outcome => outcome,
    };
    outcome.map_err(|source| {
        let (node, config) = (name.to_owned(), plan.target.clone());
        ActError::TargetNode { node, config, source }
    })?;
    info!(node = name, config = plan.target, "Node is to update");
    Ok(())
}

/// Puts the labels of their pool on nodes that were booted for it, once.
async fn label(context: &Context, plan: &RolloutPlan) -> Result<(), ActError> {
    let api = Api::<LeanNode>::all(context.client.clone());
    for (node, labels) in &plan.labels {
        let marker = annotation::CUSTOM_POOL_LABELS_APPLIED.name();
        let patch = json!({"metadata": {"labels": labels, "annotations": {marker: ""}}});
        let patched = apply::merge(&api, node, patch, Guard::Any).await;
        let named = |source| ActError::LabelNode { node: node.clone(), source };
        context.caches.nodes.learn(patched.map_err(named)?.into());
        info!(node, "Node has the labels of the pool that it was booted for");
    }
    Ok(())
}

/// Writes the pool's status, if it is another than before.
///
/// Counters that are about to change again are not written more often than `Settle::status` says.
async fn tell(context: &Context, reporter: &Reporter, name: &str) -> Result<Next, ActError> {
    let Some(pool) = context.caches.pools.get(name) else { return Ok(Next::Wait) };
    let now = Time(context.clock.now());
    let cluster = context.caches.controller_config();
    let order = context.caches.order_of(name);
    let build = order.as_ref().and_then(|order| image::build(context, order, &pool));
    let offered = context.caches.streams();
    let around = Around {
        controller_config: cluster.as_deref(),
        image_build: ImageBuild { config: order.as_deref(), build: build.as_deref() },
        streams: offered.as_deref().map(|offered| Streams {
            offered: Some(offered),
            images: image::named(context, &pool),
        }),
        ..Around::default()
    };
    let status = context.board.roster().status(&pool, &around, &now);
    let Some(status) = status else { return Ok(Next::Wait) };
    context.count_pool(name, |metrics| metrics.pool(name, &status, now.0));
    let before = pool.status.clone().unwrap_or_default();
    if status == before {
        return Ok(Next::Wait);
    }
    let rest = context.board.until_counters(name, context.settle.status);
    if !rest.is_zero() && without_counters(&before) == without_counters(&status) {
        return Ok(Next::After(rest));
    }
    let version = pool.resource_version().unwrap_or_default();
    let api = Api::<MachineConfigPool>::all(context.client.clone());
    let patched = apply::merge_status(&api, name, &status, Guard::Unchanged(&version)).await;
    let patched =
        patched.map_err(|source| ActError::PoolStatus { pool: name.to_owned(), source })?;
    context.caches.pools.learn(patched);
    context.board.told(name);
    let config = &status.configuration.rendered.name;
    if before.configuration.rendered.name != *config {
        let text = format!("Pool {name} has completed update to MachineConfig {config}");
        reporter.publish(&Note::normal(&*pool, "Completed", text)).await;
    }
    Ok(Next::Wait)
}

/// What of a status is worth a write by itself.
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
