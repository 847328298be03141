//! Cordons and drains nodes whose daemons ask for it, and lets pods back on afterwards.
//!
//! observe (cache, pods of one node) -> `mco_core::drain` (pure) -> cordon, evict, answer.
//! The protocol: the daemon writes `desiredDrain`, we do it and copy the value to
//! `lastAppliedDrain`. Each node has a task of its own, so one that a budget holds up keeps no other
//! from being drained.

mod evict;
mod foresee;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};
use mco_api::annotation::{self, DrainVerb};
use mco_cluster::{
    Note, Queue, Reporter, Shutdown,
    apply::{self, Changes, Guard},
    cache::Change,
    queue::Next,
    report::chain,
};
use mco_core::drain::{self, Asked, Setback};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use self::evict::Attempt;
use crate::{Context, error::ActError};

/// How many nodes are drained at a time: the pools' limits decide, not this.
const WIDTH: usize = 1024;

/// Since when each drain has been going on.
///
/// Kept in memory: after a restart the clock starts anew, as in the reference.
type Started = Mutex<BTreeMap<String, Instant>>;

struct Drainer {
    context: Arc<Context>,
    reporter: Reporter,
    started: Started,
    shutdown: Shutdown,
}

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    let (nodes, metrics) = (queue.clone(), context.metrics.clone());
    let delay = context.settle.drain;
    context.caches.nodes.on_change(move |change| match change.after {
        Some(node) if node_matters(&change) => nodes.add_after(node.name_any(), delay),
        Some(_) => {}
        None => change.before.into_iter().for_each(|node| metrics.drain_over(&node.name_any())),
    });
    let reporter = context.reporter("nodecontroller");
    let started = Started::default();
    let drainer = Drainer { context, reporter, started, shutdown: shutdown.clone() };
    queue.run(WIDTH, &shutdown, |node| sync(&drainer, node)).await;
}

fn node_matters(change: &Change<'_, Node>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    asked(before) != asked(after) || is_cordoned(before) != is_cordoned(after)
}

fn asked(node: &Node) -> Asked {
    let value = |key: &str| node.annotations().get(key).map(String::as_str);
    let (desired, applied) = (&annotation::DESIRED_DRAIN, &annotation::LAST_APPLIED_DRAIN);
    drain::asked(value(desired.name()), value(applied.name()))
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

async fn sync(drainer: &Drainer, name: String) -> Next {
    let Some(node) = drainer.context.caches.nodes.get(&name) else {
        drainer.forget(&name);
        return Next::Wait;
    };
    let outcome = match asked(&node) {
        Asked::Nothing => {
            drainer.forget(&name);
            return Next::Wait;
        }
        Asked::Unclear { text, .. } => {
            let verb = text.split('-').next().unwrap_or_default();
            warn!(node = name, "node {name}: non-recognized drain verb detected {verb}");
            return Next::Retry;
        }
        Asked::This(request) => match request.verb {
            DrainVerb::Uncordon => drainer.uncordon(&node).await,
            DrainVerb::Drain => drainer.drain(&node).await,
        },
    };
    outcome.unwrap_or_else(|error| {
        warn!(node = name, error = chain(&error), "Drain request is not answered yet");
        Next::Retry
    })
}

impl Drainer {
    async fn uncordon(&self, node: &Node) -> Result<Next, ActError> {
        self.forget(&node.name_any());
        // One write, so that a node is never said to be open before it is.
        let patch = json!({
            "spec": {"unschedulable": null},
            "metadata": {"annotations": answer(node)},
        });
        self.patch(node, patch)
            .await
            .map_err(|source| ActError::Uncordon { node: node.name_any(), source })?;
        info!(node = node.name_any(), "Node is open to pods again");
        Ok(Next::Wait)
    }

    async fn drain(&self, node: &Node) -> Result<Next, ActError> {
        let name = node.name_any();
        let since = self.since(&name);
        if let Some(text) = since.and_then(|since| drain::overdue(&name, since.elapsed())) {
            self.reporter.publish(&Note::warning(node, "DrainFailed", text)).await;
            self.context.metrics.drain_overdue(&name);
        }
        let since = match since {
            Some(since) if is_cordoned(node) => since,
            // Somebody let pods back on: the clock starts anew.
            Some(_) | None => {
                if let Some(text) = foresee::blockers(&self.context, node).await {
                    self.reporter.publish(&Note::warning(node, "DrainBlocked", text)).await;
                }
                self.patch(node, json!({"spec": {"unschedulable": true}}))
                    .await
                    .map_err(|source| ActError::Cordon { node: name.clone(), source })?;
                info!(node = name, "Node is closed to new pods");
                self.begin(&name)
            }
        };
        match evict::all(&self.context, node, &self.shutdown).await? {
            Attempt::Empty => self.finish(node).await,
            Attempt::Overtaken => Ok(Next::After(Duration::ZERO)),
            Attempt::Blocked(why) => Ok(Next::After(self.later(node, since, &why).await)),
        }
    }

    async fn finish(&self, node: &Node) -> Result<Next, ActError> {
        let name = node.name_any();
        let now = self.context.caches.nodes.get(&name);
        if now.is_some_and(|now| !is_cordoned(&now)) {
            // Pods may have come back, so the drain is not over; that change wakes us again.
            warn!(node = name, "Node was opened to pods during its drain");
            return Ok(Next::After(Duration::ZERO));
        }
        let api = Api::<Node>::all(self.context.client.clone());
        let patched = apply::patch_annotations(&api, &name, &answer(node)).await;
        let patched =
            patched.map_err(|source| ActError::AnswerDrain { node: name.clone(), source })?;
        self.context.caches.nodes.learn(patched);
        self.forget(&name);
        info!(node = name, "Node is drained");
        Ok(Next::Wait)
    }

    /// Says that the drain does not get on; gives the pause before the next attempt.
    async fn later(&self, node: &Node, since: Instant, why: &str) -> Duration {
        let Setback { pause, warning } = drain::setback(since.elapsed(), why);
        warn!(node = node.name_any(), why, pause = pause.as_secs(), "Drain does not get on");
        if let Some(text) = warning {
            self.reporter.publish(&Note::warning(node, "DrainThresholdExceeded", text)).await;
        }
        pause
    }

    async fn patch(&self, node: &Node, patch: Value) -> Result<(), mco_cluster::CallError> {
        let api = Api::<Node>::all(self.context.client.clone());
        let patched = apply::merge(&api, &node.name_any(), patch, Guard::Any).await?;
        self.context.caches.nodes.learn(patched);
        Ok(())
    }

    fn since(&self, node: &str) -> Option<Instant> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied()
    }

    fn begin(&self, node: &str) -> Instant {
        let now = Instant::now();
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.insert(node.to_owned(), now);
        now
    }

    fn forget(&self, node: &str) {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
        self.context.metrics.drain_over(node);
    }
}

/// The annotation that says the node's request is done.
fn answer(node: &Node) -> Changes {
    let asked = node.annotations().get(annotation::DESIRED_DRAIN.name()).cloned();
    Changes::from([(annotation::LAST_APPLIED_DRAIN.name().to_owned(), asked)])
}
