//! Keeps what is said about each node up to date: its MachineConfigNode, and the marks on the node
//! itself (the taint of nodes that wait, the topology of the control plane).
//!
//! observe (caches) -> `mco_core::progress` and `rollout::taint` (pure) -> create, patch, delete.
//! Nothing depends on these writes, so they come after the choice of nodes and never hold it up.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use mco_api::{MachineConfigNode, MachineConfigPool, annotation};
use mco_cluster::{
    CallError, Queue, Shutdown,
    apply::{self, Guard},
    cache::Change,
    queue::Next,
    report::chain,
};
use mco_core::{
    progress::{self, Wait},
    rollout::{
        NodeView, RolloutPlan,
        taint::{self, Mark},
    },
};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::{Context, caches::membership, error::ActError};

/// How many nodes are looked at at a time.
const WIDTH: usize = 16;

/// Which nodes wait, as last decided, and which nodes are to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    by_pool: Mutex<BTreeMap<String, BTreeMap<String, Wait>>>,
    queue: Queue<String>,
}

impl Waits {
    /// Takes note of who of the pool waits now; gives those for whom something is new.
    pub(crate) fn replace(&self, pool: &str, plan: &RolloutPlan) -> Vec<String> {
        let wait = |hold: &_| Wait { target: plan.target.clone(), hold: Clone::clone(hold) };
        let after: BTreeMap<String, Wait> =
            plan.holds.iter().map(|(node, hold)| (node.clone(), wait(hold))).collect();
        let mut by_pool = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        let before = by_pool.insert(pool.to_owned(), after.clone()).unwrap_or_default();
        let names = before.keys().chain(after.keys());
        names.filter(|node| before.get(*node) != after.get(*node)).cloned().collect()
    }

    /// Lets go of a pool that is gone.
    pub(crate) fn forget(&self, pool: &str) {
        self.by_pool.lock().unwrap_or_else(PoisonError::into_inner).remove(pool);
    }

    /// Has nodes looked at.
    pub(crate) fn look(&self, nodes: impl IntoIterator<Item = String>, delay: std::time::Duration) {
        for node in nodes {
            self.queue.add_after(node, delay);
        }
    }

    fn of(&self, pool: &str, node: &str) -> Option<Wait> {
        let by_pool = self.by_pool.lock().unwrap_or_else(PoisonError::into_inner);
        by_pool.get(pool)?.get(node).cloned()
    }
}

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    listen(&context);
    let look = |node: String| {
        let context = context.clone();
        async move { sync(&context, &node).await }
    };
    context.waits.queue.run(WIDTH, &shutdown, look).await;
}

fn listen(context: &Arc<Context>) {
    let delay = context.settle.report;
    let waits = context.waits.clone();
    context.caches.nodes.on_change(move |change| {
        if let Some(node) = change.object().filter(|_| node_matters(&change)) {
            waits.look([node.name_any()], delay);
        }
    });
    let waits = context.waits.clone();
    context.caches.reports.on_change(move |change| {
        waits.look(change.object().map(|report| report.name_any()), delay);
    });
    let (waits, nodes) = (context.waits.clone(), context.caches.nodes.clone());
    context.caches.pools.on_change(move |change| {
        let spec = |pool: Option<&Arc<MachineConfigPool>>| pool.map(|pool| pool.spec.clone());
        if spec(change.before) != spec(change.after) {
            waits.look(nodes.list().iter().map(|node| node.name_any()), delay);
        }
    });
    let (waits, nodes) = (context.waits.clone(), context.caches.nodes.clone());
    context.caches.cluster.on_change(move |_| {
        waits.look(nodes.list().iter().map(|node| node.name_any()), delay);
    });
}

/// Whether a node changed in more than its kubelet's reports.
fn node_matters(change: &Change<'_, Node>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    let (old, new) = (&before.metadata, &after.metadata);
    old.labels != new.labels
        || old.annotations != new.annotations
        || old.uid != new.uid
        || before.spec != after.spec
}

async fn sync(context: &Context, name: &str) -> Next {
    let outcome = match context.caches.nodes.get(name) {
        None => remove(context, name).await,
        Some(node) => {
            let pool = pool_of(context, &node);
            let marked = mark(context, &node, pool.as_deref()).await;
            tell(context, &node, pool.as_deref()).await.and(marked)
        }
    };
    match outcome {
        Ok(()) => Next::Wait,
        Err(error) => {
            debug!(
                node = name,
                error = chain(&error),
                "What is said of the node is not up to date"
            );
            Next::Retry
        }
    }
}

fn pool_of(context: &Context, node: &Node) -> Option<Arc<MachineConfigPool>> {
    match membership(&context.caches.pools).of(&node.name_any(), node.labels()) {
        Ok(found) => context.caches.pools.get(found.primary()?),
        Err(error) => {
            warn!(node = node.name_any(), error = chain(&error), "Node belongs to no pool");
            None
        }
    }
}

/// Puts the taint on or takes it off, and says how the control plane is laid out.
async fn mark(
    context: &Context,
    node: &Node,
    pool: Option<&MachineConfigPool>,
) -> Result<(), ActError> {
    let Some(pool) = pool else { return Ok(()) };
    let mut patch = json!({});
    let cluster = context.caches.controller_config();
    let infra = cluster.as_ref().and_then(|cluster| cluster.spec.infra.as_ref()?.status.clone());
    if let Some(topology) = infra.and_then(|infra| infra.control_plane_topology) {
        let key = annotation::CONTROL_PLANE_TOPOLOGY.name();
        if node.annotations().get(key).map(String::as_str) != Some(topology.as_str()) {
            merge(&mut patch, json!({"metadata": {"annotations": {key: topology.as_str()}}}));
        }
    }
    let mut guard = Guard::Any;
    let version = node.resource_version().unwrap_or_default();
    if let Some(taints) = taints(node, pool) {
        // The list is written as a whole, and others write to it.
        guard = Guard::Unchanged(&version);
        merge(&mut patch, json!({"spec": {"taints": taints}}));
    }
    if patch == json!({}) {
        return Ok(());
    }
    let api = Api::<Node>::all(context.client.clone());
    let patched = apply::merge(&api, &node.name_any(), patch, guard).await;
    let named = |source: CallError| ActError::MarkNode { node: node.name_any(), source };
    context.caches.nodes.learn(patched.map_err(named)?);
    Ok(())
}

/// The node's taints, if they are to change.
fn taints(node: &Node, pool: &MachineConfigPool) -> Option<Vec<Taint>> {
    let target = &pool.spec.configuration.rendered.name;
    if pool.spec.paused || pool.metadata.deletion_timestamp.is_some() || target.is_empty() {
        return None;
    }
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    match taint::change(&NodeView::of(node), target)? {
        Mark::Absent => taints.retain(|taint| !taint::is_ours(taint)),
        Mark::Present => taints.push(Taint {
            key: taint::KEY.to_owned(),
            effect: taint::EFFECT.to_owned(),
            ..Taint::default()
        }),
    }
    Some(taints)
}

fn merge(patch: &mut Value, other: Value) {
    if let (Some(patch), Value::Object(other)) = (patch.as_object_mut(), other) {
        patch.extend(other);
    }
}

/// Brings the MachineConfigNode up to date.
async fn tell(
    context: &Context,
    node: &Node,
    pool: Option<&MachineConfigPool>,
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
    let wait = pool.as_deref().and_then(|pool| context.waits.of(pool, &name));
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
    apply::create(&api, &progress::object(node, pool))
        .await
        .map_err(|source| ActError::WriteReport { node: name.clone(), source })?;
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
