//! One attempt to get all pods off a node.
//!
//! A node without pods costs one list, made when it is closed to new ones. For any other its pods are
//! watched, so that a drain is over when its last pod is, and nothing is asked for while it waits.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{EvictParams, ListParams},
    runtime::watcher,
};
use mco_api::annotation::DrainRecord;
use mco_cluster::{Cache, CallError, cache::trim, error::Refused, report::chain};
use mco_core::drain::{Fate, Limits, PodView};
use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use tracing::debug;

use super::{Drainer, asked, blockers, is_cordoned};
use crate::{Context, error::ActError};

/// How many evictions of one node are asked for at a time.
const WRITES: usize = 16;

/// The longest time that the server can ask us to leave a pod in peace for.
const LONGEST: Duration = Duration::from_mins(5);

/// How long nothing may be heard of the pods before the attempt counts as failed.
const SILENCE: Duration = Duration::from_mins(1);

/// What came of an attempt.
pub(super) enum Attempt {
    /// Nothing is left that has to go.
    Empty,
    /// Something is; the record says what, and why.
    Blocked,
    /// The daemon asks for something else by now, or somebody opened the node, or we are to stop.
    Overtaken,
}

/// Pods, each with the reason why it is not evicted.
pub(super) type Refusals = BTreeMap<String, String>;

/// A pod that is left in peace for a while.
struct Held {
    /// The server's reason for not evicting it; none if it agreed.
    why: Option<String>,
    until: Instant,
}

/// Evicts these pods and those that come to light, and waits for them to go, for as long as an attempt
/// may take.
///
/// What holds it up is written down as soon as it is known, not only at the end.
pub(super) async fn attempt(
    drainer: &Drainer,
    node: &Node,
    pods: &[Pod],
    record: &mut DrainRecord,
    limits: &Limits,
) -> Result<Attempt, ActError> {
    if pods.is_empty() {
        return Ok(Attempt::Empty);
    }
    let (context, name) = (&drainer.context, node.name_any());
    let cache = Cache::new(trim::pod);
    let changed = Arc::new(Notify::new());
    let told = changed.clone();
    cache.on_change(move |_| told.notify_one());
    let config = watcher::Config::default().fields(&of(&name));
    let eviction =
        Eviction { drainer, node, pods: &cache, changed: &changed, time: limits.attempt };
    let outcome = tokio::select! {
        outcome = eviction.run(record) => outcome?,
        () = cache.run(Api::all(context.client.clone()), config, &drainer.shutdown) => Attempt::Overtaken,
    };
    // A watch can be late, so the server has the last word.
    if matches!(outcome, Attempt::Empty) && !in_the_way(context, &name).await?.is_empty() {
        return Ok(Attempt::Overtaken);
    }
    Ok(outcome)
}

/// The pods of a node that have to go, as the server knows them.
pub(super) async fn in_the_way(context: &Context, node: &str) -> Result<Vec<Pod>, ActError> {
    let api = Api::<Pod>::all(context.client.clone());
    let pods = api
        .list(&ListParams::default().fields(&of(node)))
        .await
        .map_err(|source| ActError::ListPods { node: node.to_owned(), source: source.into() })?;
    Ok(pods.into_iter().filter(|pod| PodView::of(pod).is_in_the_way()).collect())
}

/// Selects the pods of a node.
fn of(node: &str) -> String {
    format!("spec.nodeName={node}")
}

struct Eviction<'a> {
    drainer: &'a Drainer,
    node: &'a Node,
    pods: &'a Cache<Pod>,
    /// Told of every change of a pod.
    changed: &'a Notify,
    /// How long the attempt may take from when the pods are known.
    time: Duration,
}

impl Eviction<'_> {
    async fn run(&self, record: &mut DrainRecord) -> Result<Attempt, ActError> {
        let name = self.node.name_any();
        let wake = self.drainer.wakes.of(&name);
        tokio::select! {
            () = self.pods.ready() => {}
            () = sleep(SILENCE) => return Err(ActError::WatchPods { node: name }),
        }
        let until = Instant::now() + self.time;
        let mut held: BTreeMap<String, Held> = BTreeMap::new();
        loop {
            let pods = self.in_the_way();
            if pods.is_empty() {
                return Ok(Attempt::Empty);
            }
            self.round(&pods, &mut held).await;
            let is_over = Instant::now() >= until;
            self.tell(record, &pods, &held, is_over).await?;
            if is_over {
                return Ok(Attempt::Blocked);
            }
            let next = held.values().map(|held| held.until).min();
            tokio::select! {
                () = sleep_until(next.unwrap_or(until).min(until)) => {}
                () = self.changed.notified() => {}
                () = wake.notified() => {}
            }
            if self.is_overtaken() {
                return Ok(Attempt::Overtaken);
            }
        }
    }

    /// The pods that have to go.
    fn in_the_way(&self) -> Vec<Arc<Pod>> {
        let mut pods = self.pods.list();
        pods.retain(|pod| PodView::of(pod).is_in_the_way());
        pods
    }

    /// Whether this is not what the daemon wants any more, or somebody has opened the node: pods may
    /// come back to it.
    fn is_overtaken(&self) -> bool {
        let now = self.drainer.context.caches.nodes.get(&self.node.name_any());
        now.is_none_or(|now| asked(&now) != asked(self.node) || !is_cordoned(&now))
    }

    /// Asks for every eviction that is due.
    async fn round(&self, pods: &[Arc<Pod>], held: &mut BTreeMap<String, Held>) {
        let (now, context) = (Instant::now(), &self.drainer.context);
        let views: Vec<PodView> = pods.iter().map(|pod| PodView::of(pod)).collect();
        let leaving: BTreeSet<String> =
            views.iter().filter(|pod| pod.fate == Fate::Evict).map(ToString::to_string).collect();
        held.retain(|pod, _| leaving.contains(pod));
        let is_due =
            |pod: &PodView| held.get(&pod.to_string()).is_none_or(|held| held.until <= now);
        let due: Vec<_> = views
            .iter()
            .filter(|pod| pod.fate == Fate::Evict && is_due(pod))
            .map(|pod| self.asked(pod.clone()))
            .collect();
        let answers: Vec<_> = stream::iter(due).buffer_unordered(WRITES).collect().await;
        for (pod, answer) in answers.into_iter().flatten() {
            let (why, pause) = match answer {
                Ok(()) => (None, None),
                Err(error) => (Some(chain(&error)), error.retry_after()),
            };
            let pause = pause.map_or(context.pace.refused, |asked| asked.min(LONGEST));
            held.insert(pod, Held { why, until: Instant::now() + pause });
        }
    }

    /// Asks for one eviction, when it is its turn.
    ///
    /// In a task of its own, which goes on when this process is told to stop: an eviction that is dropped
    /// half-way may count in a budget and yet evict nobody, and the budget then lets no other pod go for
    /// two minutes.
    async fn asked(&self, pod: PodView) -> Option<(String, Result<(), CallError>)> {
        let (context, turns) = (self.drainer.context.clone(), self.drainer.evictions.clone());
        let turn = turns.acquire_owned().await.expect("the semaphore is never closed");
        let asked = tokio::spawn(async move {
            let answer = evict(&context, &pod).await;
            drop(turn);
            (pod.to_string(), answer)
        });
        asked.await.ok()
    }

    /// Writes down what holds the drain up, if that is news.
    async fn tell(
        &self,
        record: &mut DrainRecord,
        pods: &[Arc<Pod>],
        held: &BTreeMap<String, Held>,
        is_over: bool,
    ) -> Result<(), ActError> {
        let refused = held.iter().filter_map(|(pod, held)| Some((pod.clone(), held.why.clone()?)));
        let refused: Refusals = refused.collect();
        let found = if is_over { blockers::all(pods, refused) } else { refused };
        if blockers::are_news(record, pods, &found) {
            let name = self.node.name_any();
            blockers::record(&self.drainer.context, record, &name, pods, found).await;
            if !is_over {
                self.drainer.keep(self.node, record).await?;
            }
        }
        Ok(())
    }
}

async fn evict(context: &Context, pod: &PodView) -> Result<(), CallError> {
    let api = Api::<Pod>::namespaced(context.client.clone(), &pod.namespace);
    match api.evict(&pod.name, &EvictParams::default()).await.map_err(CallError::from) {
        Ok(_) => Ok(()),
        // Gone already, which is what we wanted.
        Err(error) if error.refused() == Some(Refused::NotFound) => Ok(()),
        Err(error) => {
            debug!(pod = %pod, why = chain(&error), "Pod is not evicted");
            Err(error)
        }
    }
}
