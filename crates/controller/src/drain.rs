//! Cordons and drains nodes whose daemons ask for it, and lets pods back on afterwards.
//!
//! observe (cache, pods of one node) -> `mco_core::drain` (pure) -> cordon, evict, answer.
//! The protocol: the daemon writes `desiredDrain`, we do it and copy the value to
//! `lastAppliedDrain`. Each node has a task of its own, so one that a budget holds up keeps no other
//! from being drained; what all of them ask for at a time is limited.
//!
//! Nothing about a drain is kept in memory: when it began, how often it failed and what holds it up
//! are on the node, in the annotation `drainRecord`, which goes in and out with the cordon and the
//! answer. A controller that takes over goes on from there.

mod blockers;
mod evict;
mod foresee;
mod wake;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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
use mco_core::drain::{self, Asked, BadTimeout, Limits, Setback};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use self::{evict::Attempt, wake::Wakes};
use crate::{Context, caches::LeanNode, error::ActError, metrics::Action};

/// How many nodes are drained at a time: the pools' limits decide, not this.
const WIDTH: usize = 1024;

/// How many evictions are asked for at a time, of all nodes together.
const EVICTIONS: u32 = 64;

/// How long a process that is told to stop waits for the evictions that it has asked for.
const FAREWELL: Duration = Duration::from_secs(5);

struct Drainer {
    context: Arc<Context>,
    reporter: Reporter,
    shutdown: Shutdown,
    /// Wakes those that wait when their node changes.
    wakes: Wakes,
    /// One for each eviction that may be asked for.
    evictions: Arc<Semaphore>,
    /// What was last said about a pool's limits.
    complaints: Mutex<BTreeMap<String, Vec<BadTimeout>>>,
}

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    let (wakes, delay) = (Wakes::default(), context.settle.drain);
    let (nodes, woken) = (queue.clone(), wakes.clone());
    context.caches.nodes.on_change(move |change| {
        if let Some(node) = change.object().filter(|_| node_matters(&change)) {
            woken.wake(&node.name_any());
            nodes.add_after(node.name_any(), delay);
        }
    });
    let reporter = context.reporter("nodecontroller");
    let drainer = Drainer {
        context,
        reporter,
        shutdown: shutdown.clone(),
        wakes,
        evictions: Arc::new(Semaphore::new(EVICTIONS as usize)),
        complaints: Mutex::default(),
    };
    queue.run(WIDTH, &shutdown, |node| sync(&drainer, node)).await;
    let answered = drainer.evictions.acquire_many(EVICTIONS);
    if tokio::time::timeout(FAREWELL, answered).await.is_err() {
        warn!("Evictions are left unanswered after {} seconds", FAREWELL.as_secs());
    }
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
    let Some(node) = drainer.context.caches.nodes.get(&name) else { return Next::Wait };
    let outcome = match asked(&node) {
        Asked::Nothing => {
            drainer.context.metrics.drain_over(&name);
            return Next::Wait;
        }
        Asked::Unclear { text, .. } => {
            drainer.refuse(&node, &text).await;
            return Next::Retry;
        }
        Asked::This(request) => match request.verb {
            DrainVerb::Uncordon => drainer.uncordon(&node).await,
            DrainVerb::Drain => drainer.drain(&node).await,
        },
    };
    outcome.unwrap_or_else(|error| {
        warn!(node = name, error = chain(&error), "Drain request is not answered yet");
        Next::after(&error)
    })
}

impl Drainer {
    async fn uncordon(&self, node: &Node) -> Result<Next, ActError> {
        self.count_end(&node.name_any(), Action::Uncordon);
        // One write, so that a node is never said to be open before it is.
        let patch = json!({
            "spec": {"unschedulable": null},
            "metadata": {"annotations": answer(node)},
        });
        self.patch(node, patch, Guard::Any)
            .await
            .map_err(|source| ActError::Uncordon { node: node.name_any(), source })?;
        info!(node = node.name_any(), "Node is open to pods again");
        Ok(Next::Wait)
    }

    async fn drain(&self, node: &Node) -> Result<Next, ActError> {
        let name = node.name_any();
        let limits = self.limits(node).await;
        let mut record = self.begin(node).await?;
        if let Some(text) = drain::overdue(&name, &limits, self.age(&record)) {
            self.context.count_node(&name, |metrics| metrics.drain_overdue(&name));
            self.reporter.publish(&Note::warning(node, "DrainFailed", text)).await;
        }
        let pods = evict::in_the_way(&self.context, &name).await?;
        if !pods.is_empty()
            && is_fresh(&record)
            && let Some(text) = foresee::blockers(&self.context, &name, &pods).await
        {
            self.reporter.publish(&Note::warning(node, "DrainBlocked", text)).await;
        }
        match evict::attempt(self, node, &pods, &mut record, &limits).await? {
            Attempt::Empty => self.finish(node).await,
            Attempt::Overtaken => Ok(Next::After(Duration::ZERO)),
            Attempt::Blocked => {
                record.attempts = record.attempts.saturating_add(1);
                self.keep(node, &record).await?;
                Ok(Next::After(self.later(node, &record, &limits).await))
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
                let since = Time(self.context.clock.now());
                DrainRecord { request, since, attempts: 0, blockers: Vec::new(), more: 0 }
            }
        };
        let patch = json!({
            "spec": {"unschedulable": true},
            "metadata": {"annotations": recorded(&record)},
        });
        self.patch(node, patch, Guard::Any)
            .await
            .map_err(|source| ActError::Cordon { node: node.name_any(), source })?;
        // By now the cache has what was written, or something newer.
        let now = self.context.caches.nodes.get(&node.name_any());
        if now.is_some_and(|now| !is_cordoned(&now)) {
            return Err(ActError::NotCordoned { node: node.name_any() });
        }
        info!(node = node.name_any(), "Node is closed to new pods");
        Ok(record)
    }

    /// Answers the request, unless somebody has opened the node meanwhile.
    async fn finish(&self, node: &Node) -> Result<Next, ActError> {
        let name = node.name_any();
        let Some(now) = self.context.caches.nodes.get(&name) else { return Ok(Next::Wait) };
        if !is_cordoned(&now) || request(&now) != request(node) {
            // Pods may have come back, so the drain is not over.
            warn!(node = name, "Node was opened to pods during its drain");
            return Ok(Next::After(Duration::ZERO));
        }
        // If the answer is refused, the next look counts anew.
        self.count_end(&name, Action::Drain);
        let patch = json!({"metadata": {"annotations": answer(node)}});
        let version = now.resource_version().unwrap_or_default();
        // Whatever changed meanwhile may have been the cordon: then it is looked at again.
        self.patch(node, patch, Guard::Unchanged(&version))
            .await
            .map_err(|source| ActError::AnswerDrain { node: name.clone(), source })?;
        info!(node = name, "Node is drained");
        Ok(Next::Wait)
    }

    /// Counts that a node is drained or open again, before its daemon is told.
    fn count_end(&self, node: &str, action: Action) {
        let now = self.context.clock.now();
        self.context.count_node(node, |metrics| {
            metrics.drain_over(node);
            metrics.acted(action, node, now);
        });
    }

    /// Says that nobody knows what the daemon wants.
    async fn refuse(&self, node: &Node, text: &str) {
        let (name, key) = (node.name_any(), annotation::DESIRED_DRAIN.name());
        let verb = text.split('-').next().unwrap_or_default();
        let text = format!(
            "node {name}: non-recognized drain verb detected {verb}; the annotation {key} must \
             begin with drain- or uncordon-"
        );
        self.reporter.publish(&Note::warning(node, "DrainRequestUnknown", text)).await;
    }

    /// How long the drain of this node may take; what its pool asks for wrongly is said once.
    async fn limits(&self, node: &Node) -> Limits {
        let default = Limits { attempt: self.context.pace.attempt, ..Limits::REFERENCE };
        let found = {
            let roster = self.context.board.roster();
            roster.pool_of(&node.name_any()).ok().flatten().map(str::to_owned)
        };
        let pool = found.and_then(|name| self.context.caches.pools.get(&name));
        let Some(pool) = pool else { return default };
        let (limits, faults) = Limits::of(pool.annotations(), default);
        let known = {
            let mut said = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
            said.insert(pool.name_any(), faults.clone()).unwrap_or_default()
        };
        for fault in faults.iter().filter(|fault| !known.contains(fault)) {
            let text = fault.text(&pool.name_any());
            self.reporter.publish(&Note::warning(&*pool, "DrainTimeoutInvalid", text)).await;
        }
        limits
    }

    /// Says that the drain does not get on; gives the pause before the next attempt.
    async fn later(&self, node: &Node, record: &DrainRecord, limits: &Limits) -> Duration {
        let why = blockers::text(record);
        let Setback { pause, warning } = drain::setback(limits, self.age(record), &why);
        warn!(node = node.name_any(), why, pause = pause.as_secs(), "Drain does not get on");
        if let Some(text) = warning {
            self.reporter.publish(&Note::warning(node, "DrainThresholdExceeded", text)).await;
        }
        pause
    }

    /// Writes down how the drain goes.
    async fn keep(&self, node: &Node, record: &DrainRecord) -> Result<(), ActError> {
        self.patch(node, json!({"metadata": {"annotations": recorded(record)}}), Guard::Any)
            .await
            .map_err(|source| ActError::RecordDrain { node: node.name_any(), source })
    }

    async fn patch(&self, node: &Node, patch: Value, guard: Guard<'_>) -> Result<(), CallError> {
        let api = Api::<LeanNode>::all(self.context.client.clone());
        let patched = apply::merge(&api, &node.name_any(), patch, guard).await?;
        self.context.caches.nodes.learn(patched.into());
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

/// Whether nobody has tried to evict anything in this drain yet.
fn is_fresh(record: &DrainRecord) -> bool {
    record.attempts == 0 && record.blockers.is_empty()
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
