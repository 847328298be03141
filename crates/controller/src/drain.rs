//! Cordons and drains nodes whose daemons ask for it, and lets pods back on afterwards.
//!
//! observe (cache, pods of one node) -> `mco_core::drain` (pure) -> cordon, evict, answer.
//! The protocol: the daemon writes `desiredDrain`, we do it and copy the value to
//! `lastAppliedDrain`. Each node has a task of its own, so one that a budget holds up keeps no other
//! from being drained.
//!
//! Nothing about a drain is kept in memory: when it began, how often it failed and what holds it up
//! are on the node, in the annotation `drainRecord`, which goes in and out with the cordon and the
//! answer. A controller that takes over goes on from there.

mod blockers;
mod evict;
mod foresee;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, ResourceExt as _};
use mco_api::annotation::{self, DrainRecord, DrainVerb};
use mco_cluster::{
    CallError, Note, Queue, Reporter, Shutdown,
    apply::{self, Changes, Guard},
    cache::Change,
    queue::Next,
    report::chain,
};
use mco_core::drain::{self, Asked, Setback};
use serde_json::{Value, json};
use tracing::{info, warn};

use self::evict::Attempt;
use crate::{Context, error::ActError};

/// How many nodes are drained at a time: the pools' limits decide, not this.
const WIDTH: usize = 1024;

struct Drainer {
    context: Arc<Context>,
    reporter: Reporter,
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
    let drainer = Drainer { context, reporter, shutdown: shutdown.clone() };
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
    let metrics = &drainer.context.metrics;
    let Some(node) = drainer.context.caches.nodes.get(&name) else {
        metrics.drain_over(&name);
        return Next::Wait;
    };
    let outcome = match asked(&node) {
        Asked::Nothing => {
            metrics.drain_over(&name);
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
        self.context.metrics.drain_over(&node.name_any());
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
        let mut record = self.begin(node).await?;
        if let Some(text) = drain::overdue(&name, self.age(&record)) {
            self.reporter.publish(&Note::warning(node, "DrainFailed", text)).await;
            self.context.metrics.drain_overdue(&name);
        }
        match evict::attempt(self, node, &mut record).await? {
            Attempt::Empty => self.finish(node).await,
            Attempt::Overtaken => Ok(Next::After(Duration::ZERO)),
            Attempt::Blocked => {
                record.attempts = record.attempts.saturating_add(1);
                self.keep(node, &record).await?;
                Ok(Next::After(self.later(node, &record).await))
            }
        }
    }

    /// Cordons the node, unless it is and its drain goes on.
    ///
    /// One that somebody opened in the meantime starts anew: pods may have come back.
    async fn begin(&self, node: &Node) -> Result<DrainRecord, ActError> {
        let request = request(node);
        let known = known(node).filter(|_| is_cordoned(node));
        let record = match known {
            Some(record) if record.request == request => return Ok(record),
            // The daemon has thought better of the config, but it is still the same drain.
            Some(record) => DrainRecord { request, ..record },
            None => {
                if let Some(text) = foresee::blockers(&self.context, node).await {
                    self.reporter.publish(&Note::warning(node, "DrainBlocked", text)).await;
                }
                let since = Time(self.context.clock.now());
                DrainRecord { request, since, attempts: 0, blockers: Vec::new(), more: 0 }
            }
        };
        let patch = json!({
            "spec": {"unschedulable": true},
            "metadata": {"annotations": recorded(&record)},
        });
        self.patch(node, patch)
            .await
            .map_err(|source| ActError::Cordon { node: node.name_any(), source })?;
        info!(node = node.name_any(), "Node is closed to new pods");
        Ok(record)
    }

    async fn finish(&self, node: &Node) -> Result<Next, ActError> {
        let name = node.name_any();
        let now = self.context.caches.nodes.get(&name);
        if now.is_some_and(|now| !is_cordoned(&now)) {
            // Pods may have come back, so the drain is not over; that change wakes us again.
            warn!(node = name, "Node was opened to pods during its drain");
            return Ok(Next::After(Duration::ZERO));
        }
        self.patch(node, json!({"metadata": {"annotations": answer(node)}}))
            .await
            .map_err(|source| ActError::AnswerDrain { node: name.clone(), source })?;
        self.context.metrics.drain_over(&name);
        info!(node = name, "Node is drained");
        Ok(Next::Wait)
    }

    /// Says that the drain does not get on; gives the pause before the next attempt.
    async fn later(&self, node: &Node, record: &DrainRecord) -> Duration {
        let why = blockers::text(record);
        let Setback { pause, warning } = drain::setback(self.age(record), &why);
        warn!(node = node.name_any(), why, pause = pause.as_secs(), "Drain does not get on");
        if let Some(text) = warning {
            self.reporter.publish(&Note::warning(node, "DrainThresholdExceeded", text)).await;
        }
        pause
    }

    /// Writes down how the drain goes.
    async fn keep(&self, node: &Node, record: &DrainRecord) -> Result<(), ActError> {
        self.patch(node, json!({"metadata": {"annotations": recorded(record)}}))
            .await
            .map_err(|source| ActError::RecordDrain { node: node.name_any(), source })
    }

    async fn patch(&self, node: &Node, patch: Value) -> Result<(), CallError> {
        let api = Api::<Node>::all(self.context.client.clone());
        let patched = apply::merge(&api, &node.name_any(), patch, Guard::Any).await?;
        self.context.caches.nodes.learn(patched);
        Ok(())
    }

    fn age(&self, record: &DrainRecord) -> Duration {
        let Time(since) = &record.since;
        let age = self.context.clock.now().duration_since(*since);
        // A clock that was set back makes no drain older.
        Duration::try_from(age).unwrap_or_default()
    }
}

/// What is written on the node about its drain, whatever request it was for.
fn known(node: &Node) -> Option<DrainRecord> {
    annotation::DRAIN_RECORD.get(node.annotations()).unwrap_or_else(|error| {
        warn!(node = node.name_any(), error = chain(&error), "The drain starts anew");
        None
    })
}

fn request(node: &Node) -> String {
    node.annotations().get(annotation::DESIRED_DRAIN.name()).cloned().unwrap_or_default()
}

fn recorded(record: &DrainRecord) -> Changes {
    Changes::from([(annotation::DRAIN_RECORD.name().to_owned(), Some(record.to_string()))])
}

/// The annotations that say the node's request is done.
fn answer(node: &Node) -> Changes {
    Changes::from([
        (annotation::LAST_APPLIED_DRAIN.name().to_owned(), Some(request(node))),
        (annotation::DRAIN_RECORD.name().to_owned(), None),
    ])
}
