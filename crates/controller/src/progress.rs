//! Keeps what is said about each node up to date: its MachineConfigNode, and the marks on the node
//! itself.
//!
//! observe (the board) -> `mco_core::progress` and `rollout::taint` (pure) -> create, patch, delete.
//! Nothing depends on these writes, so they come after the choice of nodes and never hold it up.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use mco_api::{MachineConfigNode, MachineConfigPool};
use mco_cluster::{
    CallError, Shutdown,
    apply::{self, Created, Guard},
    queue::Next,
    report::chain,
};
use mco_core::progress;
use serde_json::json;
use tracing::{debug, info, warn};

use crate::{
    Context,
    error::ActError,
    mark::{Marks, Waiters},
};

/// How many nodes are looked at at a time.
const WIDTH: usize = 16;

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let look = |node: String| {
        let context = context.clone();
        async move { sync(&context, &node).await }
    };
    context.board.nodes.run(WIDTH, &shutdown, look).await;
}

async fn sync(context: &Context, name: &str) -> Next {
    let outcome = match context.caches.nodes.get(name) {
        None => remove(context, name).await.map(|()| Next::Wait),
        Some(node) => say(context, &node).await,
    };
    outcome.unwrap_or_else(|error| {
        debug!(node = name, error = chain(&error), "What is said of the node is not up to date");
        Next::Retry
    })
}

async fn say(context: &Context, node: &Node) -> Result<Next, ActError> {
    let name = node.name_any();
    let pool = pool_of(context, node);
    let Some(pool) = pool else {
        let marked = mark(context, node, &Marks::of_nobodys(context, node)).await;
        return tell(context, node, None, Waiters::Left).await.and(marked).map(|()| Next::Wait);
    };
    let rest = context.board.until_marks(&pool.name_any(), context.settle.mark);
    let waiters = if rest.is_zero() { Waiters::Marked } else { Waiters::Left };
    let marked = mark(context, node, &Marks::of(context, node, &pool, waiters)).await;
    tell(context, node, Some(&pool), waiters).await.and(marked)?;
    let is_left = waiters == Waiters::Left && context.board.roster().wait(&name).is_some();
    // A little later, so that the next look does not come a moment too early.
    let again = rest + Duration::from_millis(10);
    Ok(if is_left { Next::After(again) } else { Next::Wait })
}

fn pool_of(context: &Context, node: &Node) -> Option<Arc<MachineConfigPool>> {
    let roster = context.board.roster();
    match roster.pool_of(&node.name_any()) {
        Ok(pool) => context.caches.pools.get(pool?),
        Err(error) => {
            warn!(node = node.name_any(), error = chain(error), "Node belongs to no pool");
            None
        }
    }
}

async fn mark(context: &Context, node: &Node, marks: &Marks) -> Result<(), ActError> {
    let named = |source: CallError| ActError::MarkNode { node: node.name_any(), source };
    marks.write(context, node).await.map_err(named)
}

/// Brings the MachineConfigNode up to date.
async fn tell(
    context: &Context,
    node: &Node,
    pool: Option<&MachineConfigPool>,
    waiters: Waiters,
) -> Result<(), ActError> {
    let name = node.name_any();
    let pool = pool.map(ResourceExt::name_any);
    let Some(known) = context.caches.reports.get(&name) else {
        return create(context, node, pool.as_deref()).await;
    };
    if progress::is_of_another(&known, node) {
        // It is made anew once it is gone.
        return delete(context, &known).await;
    }
    let api = Api::<MachineConfigNode>::all(context.client.clone());
    let named = |source: CallError| ActError::WriteReport { node: name.clone(), source };
    let spec = progress::spec(node, pool.as_deref());
    if known.spec != spec {
        let patched = apply::merge(&api, &name, json!({"spec": spec}), Guard::Any).await;
        context.caches.reports.learn(patched.map_err(named)?);
    }
    let Some(known) = context.caches.reports.get(&name) else { return Ok(()) };
    let before = known.status.clone().unwrap_or_default().conditions;
    let wait = context.board.roster().wait(&name);
    if wait.is_some() && waiters == Waiters::Left {
        return Ok(());
    }
    let now = Time(context.clock.now());
    let conditions = progress::conditions(&before, node, wait.as_ref(), &now);
    if conditions == before {
        return Ok(());
    }
    // The list is written as a whole, and the daemon writes to it.
    let version = known.resource_version().unwrap_or_default();
    let patch = json!({"conditions": conditions});
    let patched = apply::merge_status(&api, &name, patch, Guard::Unchanged(&version)).await;
    context.caches.reports.learn(patched.map_err(named)?);
    Ok(())
}

async fn create(context: &Context, node: &Node, pool: Option<&str>) -> Result<(), ActError> {
    let phase = node.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Pending" | "Provisioning")) {
        return Ok(());
    }
    let name = node.name_any();
    let api = Api::<MachineConfigNode>::all(context.client.clone());
    let created = apply::create(&api, &progress::object(node, pool))
        .await
        .map_err(|source| ActError::WriteReport { node: name.clone(), source })?;
    if let Created::Now(made) = created {
        context.caches.reports.learn_new(*made);
    }
    info!(node = name, "Node has a MachineConfigNode");
    Ok(())
}

/// Removes the MachineConfigNode of a node that is gone.
async fn remove(context: &Context, name: &str) -> Result<(), ActError> {
    match context.caches.reports.get(name) {
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
        Ok(_) => info!(node = name, "MachineConfigNode of a node that is gone is removed"),
        // The garbage collector was faster.
        Err(error) if error.is_not_found() => {}
        Err(source) => return Err(ActError::WriteReport { node: name, source }),
    }
    Ok(())
}
