//! One attempt to get all pods off a node.

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{EvictParams, ListParams},
};
use mco_cluster::{CallError, Shutdown, error::Refused, report::chain};
use mco_core::drain::{Fate, PodView};
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::asked;
use crate::{Context, error::ActError};

/// How many evictions of one node are asked for at a time.
const WRITES: usize = 16;

/// What came of an attempt.
pub(super) enum Attempt {
    /// Nothing is left that has to go.
    Empty,
    /// Something is; says what, and why.
    Blocked(String),
    /// The daemon asks for something else by now, or we are to stop.
    Overtaken,
}

/// Evicts, and waits for pods to go, for as long as an attempt may take.
pub(super) async fn all(
    context: &Context,
    node: &Node,
    shutdown: &Shutdown,
) -> Result<Attempt, ActError> {
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
        if Instant::now() + pause > until {
            return Ok(Attempt::Blocked(blockers(&pods, &refusals)));
        }
        tokio::select! {
            () = shutdown.requested() => return Ok(Attempt::Overtaken),
            () = sleep(pause) => {}
        }
        let now = context.caches.nodes.get(&name);
        if now.is_none_or(|now| asked(&now) != asked(node)) {
            return Ok(Attempt::Overtaken);
        }
    }
}

/// The pods that have to go.
async fn pods(context: &Context, node: &str) -> Result<Vec<PodView>, ActError> {
    let api = Api::<Pod>::all(context.client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = api
        .list(&params)
        .await
        .map_err(|source| ActError::ListPods { node: node.to_owned(), source: source.into() })?;
    Ok(pods.items.iter().map(PodView::of).filter(PodView::is_in_the_way).collect())
}

/// Asks for every eviction once; gives the refusals.
async fn round(context: &Context, pods: &[PodView]) -> Vec<String> {
    let evictions: Vec<_> = pods
        .iter()
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
                        Some(format!("pod {pod}: {why}"))
                    }
                },
            }
        })
        .collect();
    let refused: Vec<_> = stream::iter(evictions).buffer_unordered(WRITES).collect().await;
    refused.into_iter().flatten().collect()
}

fn blockers(pods: &[PodView], refusals: &[String]) -> String {
    let leaving = pods.iter().filter(|pod| pod.fate == Fate::Leaving);
    let leaving = leaving.map(|pod| format!("pod {pod}: is still terminating"));
    let mut lines: Vec<String> = refusals.iter().cloned().chain(leaving).collect();
    if lines.is_empty() {
        lines =
            pods.iter().map(|pod| format!("pod {pod}: was evicted and is still there")).collect();
    }
    lines.sort();
    lines.join("; ")
}
