//! Makes new nodes members of their pool.
//!
//! observe (node, pools, join tokens) -> `mco_core::join::pool` (pure) -> set the labels of the pool,
//! once. An administrator who removes the labels later wins.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use mco_api::{MachineConfigPool, annotation, label};
use mco_cluster::{
    Api, Note, Queue, Reporter, Shutdown,
    apply::{self, Precondition},
    cache::Change,
    health::Work,
    queue::Reconciled,
    report::chain,
};
use mco_core::join::{
    StoredToken,
    pool::{PoolLabels, joined_pool, labels},
};
use serde_json::json;
use tracing::{info, warn};

use crate::{Context, caches::LeanNode, error::ActError};

/// Number of nodes that are reconciled at a time.
const NODE_CONCURRENCY: usize = 4;

/// Last reported reason for each node that gets no labels.
type Refusals = Mutex<HashMap<String, String>>;

/// Runs until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    if !context.caches.ready(&shutdown).await {
        return;
    }
    tokio::select! {
        () = shutdown.requested() => return,
        () = context.caches.join_tokens.ready_or_absent() => {}
    }
    subscribe(&context, &queue);
    context.health.queue("new-nodes", &queue, Work::Short);
    let (reporter, refusals) = (context.reporter("nodecontroller"), Arc::new(Refusals::default()));
    let reconcile_node = |name: String| {
        let (context, reporter, refusals) = (context.clone(), reporter.clone(), refusals.clone());
        async move { reconcile(&context, &reporter, &refusals, &name).await }
    };
    queue.run(NODE_CONCURRENCY, &shutdown, reconcile_node).await;
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<String>>) {
    let nodes = queue.clone();
    context.caches.nodes.on_change(move |change| {
        if let Some(node) = node_to_enqueue(&change) {
            nodes.add(node);
        }
    });
    let tokens = queue.clone();
    context.caches.join_tokens.on_change(move |change| {
        let token = change.after.and_then(|secret| StoredToken::read(secret).ok());
        let joins = token.into_iter().flat_map(|token| token.joins);
        joins.filter(|join| !join.approved.is_empty()).for_each(|join| tokens.add(join.approved));
    });
    let (pools, known) = (queue.clone(), context.caches.nodes.clone());
    context.caches.pools.on_change(move |change: Change<'_, MachineConfigPool>| {
        let selector = |pool: &Arc<MachineConfigPool>| pool.spec.node_selector.clone();
        if change.before.map(selector) != change.after.map(selector) {
            let asking = known.list().into_iter().filter(|node| asks(node));
            asking.for_each(|node| pools.add(node.name_any()));
        }
    });
}

fn asks(node: &Node) -> bool {
    node.labels().contains_key(label::NODE_POOL)
}

/// Returns the name of a node that is new or whose labels changed.
fn node_to_enqueue(change: &Change<'_, Node>) -> Option<String> {
    let after = change.after?;
    let same = change.before.is_some_and(|before| before.labels() == after.labels());
    let done = annotation::CUSTOM_POOL_LABELS_APPLIED.is_present(after.annotations());
    (!same && !done).then(|| after.name_any())
}

async fn reconcile(
    context: &Context,
    reporter: &Reporter,
    refusals: &Refusals,
    name: &str,
) -> Reconciled {
    let Some(node) = context.caches.nodes.get(name) else {
        refusals.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        return Reconciled::Done;
    };
    let done = annotation::CUSTOM_POOL_LABELS_APPLIED.is_present(node.annotations());
    let has_pool = !matches!(context.enqueuer.node_index().pool_of(name), Ok(None));
    if done || has_pool || node.metadata.deletion_timestamp.is_some() {
        return Reconciled::Done;
    }
    let tokens: Vec<StoredToken> = context
        .caches
        .join_tokens
        .list()
        .iter()
        .filter_map(|secret| StoredToken::read(secret).ok())
        .collect();
    let find = |pool: &str| context.caches.pools.get(pool).map(|pool| (*pool).clone());
    match labels(name, node.labels(), joined_pool(name, &tokens), find) {
        Ok(None) => Reconciled::Done,
        Ok(Some(wanted)) => match set_labels(context, reporter, &node, &wanted).await {
            Ok(()) => Reconciled::Done,
            Err(error) => {
                warn!(node = name, error = chain(&error), "Failed to label a new node");
                Reconciled::Retry
            }
        },
        Err(refusal) => {
            let text = format!("Node {name} belongs to no pool: {refusal}");
            let before = {
                let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
                refusals.insert(name.to_owned(), text.clone())
            };
            if before.as_ref() != Some(&text) {
                reporter.publish(&Note::warning(&*node, "NoPool", text)).await;
            }
            Reconciled::Done
        }
    }
}

async fn set_labels(
    context: &Context,
    reporter: &Reporter,
    node: &Node,
    wanted: &PoolLabels,
) -> Result<(), ActError> {
    let PoolLabels { pool, labels } = wanted;
    let name = node.name_any();
    let marker = annotation::CUSTOM_POOL_LABELS_APPLIED.name();
    let patch = json!({"metadata": {"labels": labels, "annotations": {marker: ""}}});
    let api = Api::<LeanNode>::all(context.client.clone());
    let patched = apply::merge(&api, &name, patch, Precondition::Any).await;
    let named = |source| ActError::LabelNode { node: name.clone(), source };
    context.caches.nodes.learn(patched.map_err(named)?.into());
    info!(node = name, pool, "Set labels of the pool that the node joined");
    let keys: Vec<&str> = labels.keys().map(String::as_str).collect();
    let text = format!("Node {name} joined pool {pool}: set {}", keys.join(", "));
    reporter.publish(&Note::normal(node, "JoinedPool", text)).await;
    Ok(())
}
