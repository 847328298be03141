//! One attempt to evict all pods of a node.
//!
//! A node without pods costs one list after its cordon. For any other node the controller watches
//! the pods, so that a drain completes as soon as its last pod is gone, and sends no requests while
//! it waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{ResourceExt as _, api::ListParams};
use mco_api::annotation::DrainRecord;
use mco_cluster::{Api, Cache, CallError, cache::trim, error::Rejection, report::chain, watch};
use mco_core::drain::{PodTreatment, PodView};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tracing::{debug, warn};

use super::{Drainer, blockers, drain_request, is_cordoned};
use crate::{Context, error::ActError};

/// Number of concurrent evictions of one node.
const EVICTION_CONCURRENCY: usize = 16;

/// Upper bound of the API server's Retry-After.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// Time limit for the first list of the pods; an attempt that exceeds it counts as failed.
const WATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Result of a drain attempt.
pub(super) enum Attempt {
    /// No pod is left to evict.
    Empty,
    /// Pods are left; the record names them with the reasons.
    Blocked,
    /// The daemon requests something else by now, the node was uncordoned, or shutdown was
    /// requested.
    Superseded,
}

/// Pods with the reasons for which they were not evicted.
pub(super) type Refusals = BTreeMap<String, String>;

/// A pod whose eviction is not requested again before `until`.
struct Deferred {
    /// The API server's reason to refuse the eviction; `None` if it accepted.
    why: Option<String>,
    until: Instant,
}

/// Evicts these pods and those that appear later, and waits until they are gone, within the time
/// limit of an attempt.
///
/// Blocking pods are recorded on the node as soon as they are known, not only at the end.
pub(super) async fn run_attempt(
    drainer: &Drainer,
    node: &Node,
    pods: &[Pod],
    record: &mut DrainRecord,
    time: Duration,
) -> Result<Attempt, ActError> {
    if pods.is_empty() {
        return Ok(Attempt::Empty);
    }
    let (context, name) = (&drainer.context, node.name_any());
    let cache = Cache::new(trim::pod);
    let changed = Arc::new(Notify::new());
    let notified = changed.clone();
    cache.on_change(move |_| notified.notify_one());
    let config = watch::Config::default().fields(&pods_of(&name));
    let eviction = Eviction { drainer, node, pods: &cache, changed: &changed, time };
    let outcome = tokio::select! {
        outcome = eviction.run(record) => outcome?,
        () = cache.run(Api::all(context.client.clone()), config, &drainer.shutdown) => Attempt::Superseded,
    };
    // A watch can lag, so the result is verified by a list.
    if matches!(outcome, Attempt::Empty) && !list_pods_to_evict(context, &name).await?.is_empty() {
        return Ok(Attempt::Superseded);
    }
    Ok(outcome)
}

/// Lists the pods of a node that must be evicted.
pub(super) async fn list_pods_to_evict(
    context: &Context,
    node: &str,
) -> Result<Vec<Pod>, ActError> {
    let api = Api::<Pod>::all(context.client.clone());
    let pods = api
        .list(&ListParams::default().fields(&pods_of(node)))
        .await
        .map_err(|source| ActError::ListPods { node: node.to_owned(), source: source.into() })?;
    Ok(pods.into_iter().filter(|pod| PodView::of(pod).blocks_drain()).collect())
}

/// Returns the field selector for the pods of a node.
fn pods_of(node: &str) -> String {
    format!("spec.nodeName={node}")
}

struct Eviction<'a> {
    drainer: &'a Drainer,
    node: &'a Node,
    pods: &'a Cache<Pod>,
    /// Notified of every change of a pod.
    changed: &'a Notify,
    /// Time limit of the attempt, from the moment the pods are known.
    time: Duration,
}

impl Eviction<'_> {
    async fn run(&self, record: &mut DrainRecord) -> Result<Attempt, ActError> {
        let name = self.node.name_any();
        let notifier = self.drainer.notifiers.register(&name);
        tokio::select! {
            () = self.pods.ready() => {}
            () = sleep(WATCH_TIMEOUT) => return Err(ActError::WatchPods { node: name }),
        }
        let until = Instant::now() + self.time;
        let mut deferred: BTreeMap<String, Deferred> = BTreeMap::new();
        loop {
            let pods = self.pods_to_evict();
            if pods.is_empty() {
                return Ok(Attempt::Empty);
            }
            self.evict_due(&pods, &mut deferred).await;
            let is_over = Instant::now() >= until;
            self.record_blockers(record, &pods, &deferred, is_over).await?;
            if is_over {
                return Ok(Attempt::Blocked);
            }
            let next = deferred.values().map(|deferred| deferred.until).min();
            tokio::select! {
                () = sleep_until(next.unwrap_or(until).min(until)) => {}
                () = self.changed.notified() => {}
                () = notifier.notified() => {}
            }
            if self.is_superseded() {
                return Ok(Attempt::Superseded);
            }
        }
    }

    /// Returns the pods that must be evicted.
    fn pods_to_evict(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.list();
        pods.retain(|pod| PodView::of(pod).blocks_drain());
        pods
    }

    /// Returns true if the daemon's request changed, or the node was uncordoned: pods may come back
    /// to it.
    fn is_superseded(&self) -> bool {
        let now = self.drainer.context.caches.nodes.get(&self.node.name_any());
        now.is_none_or(|now| drain_request(&now) != drain_request(self.node) || !is_cordoned(&now))
    }

    /// Requests every eviction that is due.
    async fn evict_due(&self, pods: &[Arc<Pod>], deferred: &mut BTreeMap<String, Deferred>) {
        let (now, context) = (Instant::now(), &self.drainer.context);
        let views: Vec<PodView> = pods.iter().map(|pod| PodView::of(pod)).collect();
        let leaving: BTreeSet<String> = views
            .iter()
            .filter(|pod| pod.treatment == PodTreatment::Evict)
            .map(ToString::to_string)
            .collect();
        deferred.retain(|pod, _| leaving.contains(pod));
        let is_due = |pod: &PodView| {
            deferred.get(&pod.to_string()).is_none_or(|deferred| deferred.until <= now)
        };
        let due: Vec<_> = views
            .iter()
            .filter(|pod| pod.treatment == PodTreatment::Evict && is_due(pod))
            .map(|pod| self.evict_in_task(pod.clone()))
            .collect();
        let responses: Vec<_> =
            stream::iter(due).buffer_unordered(EVICTION_CONCURRENCY).collect().await;
        for (pod, response) in responses.into_iter().flatten() {
            let (why, pause) = match response {
                Ok(()) => (None, None),
                Err(error) => (Some(chain(&error)), error.retry_after()),
            };
            let pause = pause
                .map_or(context.pace.retry_interval, |requested| requested.min(MAX_RETRY_AFTER));
            deferred.insert(pod, Deferred { why, until: Instant::now() + pause });
        }
    }

    /// Requests one eviction when a permit is available.
    ///
    /// The request runs in a task of its own, which continues at shutdown: an eviction that is
    /// cancelled half-way may use up a budget's disruption without evicting the pod, and the budget
    /// then allows no other eviction for two minutes.
    async fn evict_in_task(&self, pod: PodView) -> Option<(String, Result<(), CallError>)> {
        let (context, permits) = (self.drainer.context.clone(), self.drainer.evictions.clone());
        let permit = permits.acquire_owned().await.expect("the semaphore is never closed");
        let task = tokio::spawn(async move {
            let response = evict(&context, &pod).await;
            drop(permit);
            (pod.to_string(), response)
        });
        task.await.ok()
    }

    /// Records the blocking pods on the node, if they changed.
    async fn record_blockers(
        &self,
        record: &mut DrainRecord,
        pods: &[Arc<Pod>],
        deferred: &BTreeMap<String, Deferred>,
        is_over: bool,
    ) -> Result<(), ActError> {
        let refused = deferred
            .iter()
            .filter_map(|(pod, deferred)| Some((pod.clone(), deferred.why.clone()?)));
        let refused: Refusals = refused.collect();
        let found = if is_over { blockers::of_timed_out_attempt(pods, refused) } else { refused };
        if blockers::have_changed(record, pods, &found) {
            let name = self.node.name_any();
            blockers::update_record(&self.drainer.context, record, &name, pods, found).await;
            if !is_over {
                self.drainer.write_record(self.node, record).await?;
            }
        }
        Ok(())
    }
}

async fn evict(context: &Context, pod: &PodView) -> Result<(), CallError> {
    let api = Api::<Pod>::namespaced(context.client.clone(), &pod.namespace);
    match api.evict(&pod.name, &pod.uid).await.map_err(CallError::from) {
        Ok(()) => Ok(()),
        // The pod is gone already; another one may have its name.
        Err(error) if error.is_not_found() || error.is_of_other_uid() => Ok(()),
        Err(error) if error.rejection() == Some(Rejection::TooManyRequests) => {
            debug!(pod = %pod, error = chain(&error), "Eviction refused");
            Err(error)
        }
        Err(error) => {
            warn!(pod = %pod, error = chain(&error), "Failed to evict the pod");
            Err(error)
        }
    }
}
