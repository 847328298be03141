//! Keeps the MachineConfigNode of each node up to date, and the taints and labels of the node
//! itself.
//!
//! observe (the node index) -> `mco_core::progress` and `rollout::taint` (pure) -> create, patch,
//! delete. No decision depends on these writes, so they come after the choice of nodes and never
//! delay it.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use mco_api::{MachineConfigNode, MachineConfigPool};
use mco_cluster::{
    Api, CallError, Note, Reporter, Shutdown,
    apply::{self, Created, Precondition},
    queue::Reconciled,
    report::chain,
};
use mco_core::machine_config_node;
use serde_json::json;
use tracing::{debug, info};

use crate::{
    Context,
    error::ActError,
    node_patch::{NodePatch, WaitingStatus},
};

/// Number of nodes that are reconciled at a time.
const NODE_CONCURRENCY: usize = 16;

/// Runs the MachineConfigNode controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let reporter = context.reporter("nodecontroller");
    let reconcile_node = |node: String| {
        let (context, reporter) = (context.clone(), reporter.clone());
        async move { reconcile(&context, &reporter, &node).await }
    };
    context.enqueuer.nodes.run(NODE_CONCURRENCY, &shutdown, reconcile_node).await;
}

async fn reconcile(context: &Context, reporter: &Reporter, name: &str) -> Reconciled {
    let outcome = match context.caches.nodes.get(name) {
        None => delete_removed(context, name).await.map(|()| Reconciled::Done),
        Some(node) => update_node(context, reporter, &node).await,
    };
    outcome.unwrap_or_else(|error| {
        debug!(node = name, error = chain(&error), "Failed to update MachineConfigNode");
        Reconciled::Retry
    })
}

async fn update_node(
    context: &Context,
    reporter: &Reporter,
    node: &Node,
) -> Result<Reconciled, ActError> {
    let name = node.name_any();
    let (pool, conflict) = match pool_of(context, node) {
        Ok(pool) => (pool, None),
        Err(text) => (None, Some(text)),
    };
    if let Some(text) = conflict {
        reporter.publish(&Note::warning(node, "NodeHasNoPool", text)).await;
    }
    let Some(pool) = pool else {
        let patched =
            patch_node(context, node, &NodePatch::for_unmanaged_node(context, node)).await;
        return update(context, node, None, WaitingStatus::Defer)
            .await
            .and(patched)
            .map(|()| Reconciled::Done);
    };
    let rest =
        context.enqueuer.until_waiting_status(&pool.name_any(), context.delays.waiting_status);
    let waiting = if rest.is_zero() { WaitingStatus::Publish } else { WaitingStatus::Defer };
    let patched =
        patch_node(context, node, &NodePatch::for_node(context, node, &pool, waiting)).await;
    update(context, node, Some(&pool), waiting).await.and(patched)?;
    let is_deferred = waiting == WaitingStatus::Defer
        && context.enqueuer.node_index().pending_update(&name).is_some();
    // A little later, so that the next reconcile does not come a moment too early.
    let again = rest + Duration::from_millis(10);
    Ok(if is_deferred { Reconciled::RequeueAfter(again) } else { Reconciled::Done })
}

/// Returns the pool of a node, or the reason why it cannot be determined.
fn pool_of(context: &Context, node: &Node) -> Result<Option<Arc<MachineConfigPool>>, String> {
    let node_index = context.enqueuer.node_index();
    match node_index.pool_of(&node.name_any()) {
        Ok(pool) => Ok(pool.and_then(|pool| context.caches.pools.get(pool))),
        Err(error) => Err(chain(error)),
    }
}

async fn patch_node(context: &Context, node: &Node, patch: &NodePatch) -> Result<(), ActError> {
    let named = |source: CallError| ActError::PatchNode { node: node.name_any(), source };
    patch.apply(context, node).await.map_err(named)
}

/// Creates the MachineConfigNode, or updates its spec and conditions.
async fn update(
    context: &Context,
    node: &Node,
    pool: Option<&MachineConfigPool>,
    waiting: WaitingStatus,
) -> Result<(), ActError> {
    let name = node.name_any();
    let pool = pool.map(ResourceExt::name_any);
    let Some(known) = context.caches.machine_config_nodes.get(&name) else {
        return create(context, node, pool.as_deref()).await;
    };
    if machine_config_node::belongs_to_other_node(&known, node) {
        // The deletion enqueues the node again, which creates the object anew.
        return delete(context, &known).await;
    }
    let api = Api::<MachineConfigNode>::all(context.client.clone());
    let named = |source: CallError| ActError::WriteMachineConfigNode { node: name.clone(), source };
    let spec = machine_config_node::spec(node, pool.as_deref());
    if known.spec != spec {
        let patched = apply::merge(&api, &name, json!({"spec": spec}), Precondition::Any).await;
        context.caches.machine_config_nodes.learn(patched.map_err(named)?);
    }
    let Some(known) = context.caches.machine_config_nodes.get(&name) else { return Ok(()) };
    let before = known.status.clone().unwrap_or_default().conditions;
    let wait = context.enqueuer.node_index().pending_update(&name);
    if wait.is_some() && waiting == WaitingStatus::Defer {
        return Ok(());
    }
    let now = Time(context.clock.now());
    let conditions = machine_config_node::conditions(&before, node, wait.as_ref(), &now);
    if conditions == before {
        return Ok(());
    }
    // The list is written as a whole, and the daemon writes to it.
    let version = known.resource_version().unwrap_or_default();
    let patch = json!({"conditions": conditions});
    let patched = apply::merge_status(&api, &name, patch, Precondition::Unchanged(&version)).await;
    context.caches.machine_config_nodes.learn(patched.map_err(named)?);
    Ok(())
}

async fn create(context: &Context, node: &Node, pool: Option<&str>) -> Result<(), ActError> {
    let phase = node.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Pending" | "Provisioning")) {
        return Ok(());
    }
    let name = node.name_any();
    let api = Api::<MachineConfigNode>::all(context.client.clone());
    let created = apply::create(&api, &machine_config_node::object(node, pool))
        .await
        .map_err(|source| ActError::WriteMachineConfigNode { node: name.clone(), source })?;
    if let Created::Now(made) = created {
        context.caches.machine_config_nodes.learn_new(*made);
    }
    info!(node = name, "Created MachineConfigNode");
    Ok(())
}

/// Deletes the MachineConfigNode of a deleted node.
async fn delete_removed(context: &Context, name: &str) -> Result<(), ActError> {
    match context.caches.machine_config_nodes.get(name) {
        Some(known) => delete(context, &known).await,
        None => Ok(()),
    }
}

async fn delete(context: &Context, known: &MachineConfigNode) -> Result<(), ActError> {
    let name = known.name_any();
    let preconditions = Preconditions { uid: known.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let api = Api::<MachineConfigNode>::all(context.client.clone());
    match api.delete(&name, &params).await.map_err(CallError::from) {
        Ok(()) => info!(node = name, "Deleted MachineConfigNode of a deleted node"),
        // The garbage collector was faster.
        Err(error) if error.is_not_found() => {}
        Err(source) => return Err(ActError::WriteMachineConfigNode { node: name, source }),
    }
    Ok(())
}
