//! One attempt to get all pods off a node.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{EvictParams, ListParams},
};
use mco_api::annotation::DrainRecord;
use mco_cluster::{CallError, error::Refused, report::chain};
use mco_core::drain::{Fate, PodView};
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::{Drainer, asked, blockers};
use crate::{Context, error::ActError};

/// How many evictions of one node are asked for at a time.
const WRITES: usize = 16;

/// What came of an attempt.
pub(super) enum Attempt {
    /// Nothing is left that has to go.
    Empty,
    /// Something is; the record says what, and why.
    Blocked,
    /// The daemon asks for something else by now, or we are to stop.
    Overtaken,
}

/// Pods, each with the server's reason for not evicting it.
pub(super) type Refusals = BTreeMap<String, String>;

/// Evicts, and waits for pods to go, for as long as an attempt may take.
///
/// What holds it up is written down as soon as it is known, not only at the end.
pub(super) async fn attempt(
    drainer: &Drainer,
    node: &Node,
    record: &mut DrainRecord,
) -> Result<Attempt, ActError> {
    let context = &drainer.context;
    let name = node.name_any();
    let pace = context.pace;
    let until = Instant::now() + pace.attempt;
    loop {
        let pods = pods(context, &name).await?;
        if pods.is_empty() {
            return Ok(Attempt::Empty);
        }
        let refusals = round(context, &pods).await;
        let pause = if refusals.is_empty() { pace.leaving } else { pace.refused };
        let is_over = Instant::now() + pause > until;
        let found = if is_over { blockers::all(&pods, refusals) } else { refusals };
        if blockers::are_news(record, &pods, &found) {
            blockers::record(context, record, &name, &pods, found).await;
            if !is_over {
                drainer.keep(node, record).await?;
            }
        }
        if is_over {
            return Ok(Attempt::Blocked);
        }
        tokio::select! {
            () = drainer.shutdown.requested() => return Ok(Attempt::Overtaken),
            () = sleep(pause) => {}
        }
        let now = context.caches.nodes.get(&name);
        if now.is_none_or(|now| asked(&now) != asked(node)) {
            return Ok(Attempt::Overtaken);
        }
    }
}

/// The pods that have to go.
async fn pods(context: &Context, node: &str) -> Result<Vec<Pod>, ActError> {
    let api = Api::<Pod>::all(context.client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = api
        .list(&params)
        .await
        .map_err(|source| ActError::ListPods { node: node.to_owned(), source: source.into() })?;
    Ok(pods.items.into_iter().filter(|pod| PodView::of(pod).is_in_the_way()).collect())
}

/// Asks for every eviction once; gives the refusals.
async fn round(context: &Context, pods: &[Pod]) -> Refusals {
    let evictions: Vec<_> = pods
        .iter()
        .map(PodView::of)
        .filter(|pod| pod.fate == Fate::Evict)
        .map(|pod| async move {
            let api = Api::<Pod>::namespaced(context.client.clone(), &pod.namespace);
            match api.evict(&pod.name, &EvictParams::default()).await.map_err(CallError::from) {
                Ok(_) => None,
                Err(error) => match error.refused() {
                    // Gone already, which is what we wanted.
                    Some(Refused::NotFound) => None,
                    Some(
                        Refused::TooManyRequests
                        | Refused::AlreadyExists
                        | Refused::Conflict
                        | Refused::Other(_),
                    )
                    | None => {
                        let why = chain(&error);
                        debug!(pod = %pod, why, "Pod is not evicted");
                        Some((pod.to_string(), why))
                    }
                },
            }
        })
        .collect();
    let refused: Vec<_> = stream::iter(evictions).buffer_unordered(WRITES).collect().await;
    refused.into_iter().flatten().collect()
}
