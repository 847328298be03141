//! Moves the nodes of each pool to the pool's config, a few at a time, and says how far it is.
//!
//! observe (caches) -> `rollout::select` and `status::pool` (pure) -> patch annotations and status.
//! Nothing in this file decides anything.

use std::{collections::BTreeSet, sync::Arc};

use futures::{StreamExt as _, stream};
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, ResourceExt as _};
use mco_api::{
    MachineConfigNode, MachineConfigPool, annotation, condition::PoolCondition, selector,
};
use mco_cluster::{
    Cache, Note, Queue, Reporter, Shutdown,
    apply::{self, Changes, Guard},
    cache::Change,
    queue::Next,
    report::chain,
};
use mco_core::{
    rollout::{NodeView, RolloutPlan, first_boot},
    status::{self, Around, Inputs, NodeReport},
};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::{
    Context,
    caches::{membership, owner},
    error::ActError,
    rollout::{self, CONTROL_PLANE},
};

/// How many pools are looked at at a time.
const WIDTH: usize = 4;

/// How many nodes are told at a time; they are within the pool's limit already.
const WRITES: usize = 16;

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    if !context.caches.ready(&shutdown).await {
        return;
    }
    listen(&context, &queue);
    let reporter = context.reporter("nodecontroller");
    let look = |pool: String| {
        let (context, reporter) = (context.clone(), reporter.clone());
        async move { sync(&context, &reporter, &pool).await }
    };
    queue.run(WIDTH, &shutdown, look).await;
}

fn listen(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let delay = context.settle.node;
    let (pools, metrics) = (queue.clone(), context.metrics.clone());
    let waits = context.waits.clone();
    context.caches.pools.on_change(move |change| match change.after {
        Some(after) if pool_matters(&change) => pools.add_after(after.name_any(), delay),
        Some(_) => {}
        None => change.before.into_iter().for_each(|pool| {
            metrics.pool_gone(&pool.name_any());
            waits.forget(&pool.name_any());
        }),
    });
    let (nodes, pools) = (queue.clone(), context.caches.pools.clone());
    context.caches.nodes.on_change(move |change| {
        for pool in pools_of(&pools, &change) {
            // Each half of the control plane waits for the other.
            let others =
                CONTROL_PLANE.into_iter().filter(|_| CONTROL_PLANE.contains(&pool.as_str()));
            for other in others.filter(|other| *other != pool) {
                nodes.add_after(other.to_owned(), delay);
            }
            nodes.add_after(pool, delay);
        }
    });
    let (reports, pools) = (queue.clone(), context.caches.pools.clone());
    let nodes = context.caches.nodes.clone();
    context.caches.reports.on_change(move |change| {
        let Some(report) = change.object().filter(|_| report_matters(&change)) else { return };
        if let Some(node) = nodes.get(&report.name_any()) {
            for pool in pools_of(&pools, &Change { before: None, after: Some(&node) }) {
                reports.add_after(pool, delay);
            }
        }
    });
}

/// Whether a pool changed in a way that its nodes or its status depend on.
fn pool_matters(change: &Change<'_, MachineConfigPool>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    let degraded = |pool: &MachineConfigPool| {
        let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
        status::holds(conditions.unwrap_or_default(), &PoolCondition::RenderDegraded)
    };
    before.spec != after.spec
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
        || degraded(before) != degraded(after)
}

/// Whether a MachineConfigNode changed in what its pool's status depends on.
fn report_matters(change: &Change<'_, MachineConfigNode>) -> bool {
    let said = |report: Option<&Arc<MachineConfigNode>>| report.map(|one| NodeReport::of(one));
    said(change.before) != said(change.after)
}

/// The pools that manage the node, or did, if something about it changed that we look at.
fn pools_of(pools: &Cache<MachineConfigPool>, change: &Change<'_, Node>) -> BTreeSet<String> {
    let (before, after) = (change.before, change.after);
    if let (Some(before), Some(after)) = (before, after) {
        let same = before.metadata.labels == after.metadata.labels
            && NodeView::of(before) == NodeView::of(after);
        if same {
            return BTreeSet::new();
        }
    }
    let membership = membership(pools);
    let states = [before, after];
    let pools = states.into_iter().flatten().filter_map(|node| {
        match membership.of(&node.name_any(), node.labels()) {
            Ok(found) => found.primary().map(str::to_owned),
            Err(error) => {
                warn!(node = node.name_any(), error = chain(&error), "Node belongs to no pool");
                None
            }
        }
    });
    pools.collect()
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
    let started = start(context, reporter, &pool).await;
    // Whatever became of the starts, the status is told as it is.
    let told = tell(context, reporter, name).await;
    match started.and(told) {
        Ok(()) => Next::Wait,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "Pool is not done");
            Next::Retry
        }
    }
}

/// The nodes that the pool manages.
pub(crate) fn members(context: &Context, pool: &str) -> Vec<NodeView> {
    let membership = membership(&context.caches.pools);
    let nodes = context.caches.nodes.list();
    let managed = |node: &&Arc<Node>| {
        let found = membership.of(&node.name_any(), node.labels());
        found.is_ok_and(|found| found.primary() == Some(pool))
    };
    nodes.iter().filter(managed).map(|node| claimed(context, NodeView::of(node))).collect()
}

/// The node, with the labels of the custom pool that it was booted for, if it still lacks them.
fn claimed(context: &Context, mut node: NodeView) -> NodeView {
    if let Some(config) = &node.first_config {
        let config = context.caches.configs.get(config);
        let owner = config.as_deref().and_then(owner);
        let pool = owner.and_then(|owner| context.caches.pools.get(owner));
        node.claim = first_boot::claim(&node, |_| config.as_deref(), |_| pool.as_deref());
    }
    node
}

async fn start(
    context: &Context,
    reporter: &Reporter,
    pool: &MachineConfigPool,
) -> Result<(), ActError> {
    let name = pool.name_any();
    // Masters and arbiter are chosen for in turn, each with the other's last choice in the cache.
    let turn = CONTROL_PLANE.contains(&name.as_str()).then(|| context.control_plane.lock());
    let _turn = match turn {
        Some(turn) => Some(turn.await),
        None => None,
    };
    let plan = match rollout::plan(context, pool).await {
        Ok(plan) => plan,
        Err(error) => {
            warn!(pool = name, error = chain(&error), "No node is updated");
            return Ok(());
        }
    };
    if let Some(text) = plan.passed_over() {
        reporter.publish(&Note::normal(pool, "DeferringOperatorNodeUpdate", text)).await;
    }
    let told = act(context, &plan).await;
    context.waits.look(context.waits.replace(&name, &plan), context.settle.report);
    told?;
    label(context, &plan).await?;
    if let Some(text) = plan.started() {
        reporter.publish(&Note::normal(pool, "SetDesiredConfig", text)).await;
    }
    Ok(())
}

async fn act(context: &Context, plan: &RolloutPlan) -> Result<(), ActError> {
    let api = &Api::<Node>::all(context.client.clone());
    let changes = &Changes::from([
        (annotation::DESIRED_CONFIG.name().to_owned(), Some(plan.target.clone())),
        (annotation::DESIRED_IMAGE.name().to_owned(), None),
    ]);
    let writes: Vec<_> = plan
        .starts
        .iter()
        .map(|node| async move {
            match apply::patch_annotations(api, node, changes).await {
                Ok(patched) => {
                    info!(node, config = plan.target, "Node is to update");
                    // So that the next choice counts this node even before the watch tells of it.
                    context.caches.nodes.learn(patched);
                    Ok(())
                }
                Err(source) => {
                    let (node, config) = (node.clone(), plan.target.clone());
                    Err(ActError::TargetNode { node, config, source })
                }
            }
        })
        .collect();
    let outcomes: Vec<_> = stream::iter(writes).buffer_unordered(WRITES).collect().await;
    outcomes.into_iter().collect()
}

/// Puts the labels of their pool on nodes that were booted for it, once.
async fn label(context: &Context, plan: &RolloutPlan) -> Result<(), ActError> {
    let api = Api::<Node>::all(context.client.clone());
    for (node, labels) in &plan.labels {
        let marker = annotation::CUSTOM_POOL_LABELS_APPLIED.name();
        let patch = json!({"metadata": {"labels": labels, "annotations": {marker: ""}}});
        let patched = apply::merge(&api, node, patch, Guard::Any).await;
        let named = |source| ActError::LabelNode { node: node.clone(), source };
        context.caches.nodes.learn(patched.map_err(named)?);
        info!(node, "Node has the labels of the pool that it was booted for");
    }
    Ok(())
}

/// Writes the pool's status, if it is another than before.
async fn tell(context: &Context, reporter: &Reporter, name: &str) -> Result<(), ActError> {
    let Some(pool) = context.caches.pools.get(name) else { return Ok(()) };
    let nodes = members(context, name);
    let reports: Vec<NodeReport> = nodes
        .iter()
        .filter_map(|node| context.caches.reports.get(&node.name))
        .map(|report| NodeReport::of(&report))
        .collect();
    let status = status::pool(&Inputs {
        pool: &pool,
        nodes: &nodes,
        reports: &reports,
        around: Around {
            controller_config: context.caches.controller_config().as_deref(),
            ..Around::default()
        },
        now: Time(context.clock.now()),
    });
    context.metrics.pool(name, &status);
    let before = pool.status.clone().unwrap_or_default();
    if status == before {
        return Ok(());
    }
    let version = pool.resource_version().unwrap_or_default();
    let api = Api::<MachineConfigPool>::all(context.client.clone());
    let patched = apply::merge_status(&api, name, &status, Guard::Unchanged(&version)).await;
    let patched =
        patched.map_err(|source| ActError::PoolStatus { pool: name.to_owned(), source })?;
    context.caches.pools.learn(patched);
    let config = &status.configuration.rendered.name;
    if before.configuration.rendered.name != *config {
        let text = format!("Pool {name} has completed update to MachineConfig {config}");
        reporter.publish(&Note::normal(&*pool, "Completed", text)).await;
    }
    Ok(())
}
