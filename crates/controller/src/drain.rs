//! Cordons and drains nodes at the request of their daemons, and uncordons them afterwards.
//!
//! observe (cache, pods of one node) -> `mco_core::drain` (pure) -> cordon, evict, acknowledge. The
//! protocol: the daemon writes `desiredDrain`; the controller does what it requests and copies the
//! value to `lastAppliedDrain`. Each node has a task of its own, so a drain that a
//! `PodDisruptionBudget` blocks does not delay other drains; the number of concurrent evictions
//! over all nodes is limited.
//!
//! No state of a drain is kept in memory: its start, the number of failed attempts and the blocking
//! pods are recorded on the node, in the annotation `drainRecord`, which is written together with
//! the cordon and removed together with the acknowledgement. A new leader continues from there.

mod blockers;
mod evict;
mod feasibility;
mod notify;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt as _;
use mco_api::annotation::{self, DrainRecord, DrainVerb};
use mco_cluster::{
    Api, CallError, Note, Queue, Reporter, Shutdown,
    apply::{self, Changes, Precondition},
    cache::Change,
    health::Work,
    queue::Reconciled,
    report::chain,
};
use mco_core::drain::{self, BadTimeout, Handshake, Limits, PendingRequest, RetryDecision};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use self::{evict::Attempt, notify::DrainNotifiers};
use crate::{Context, caches::LeanNode, error::ActError, metrics::Action};

/// Number of nodes that are drained at a time: the pools' limits decide, not this number.
const DRAIN_CONCURRENCY: usize = 1024;

/// Number of concurrent evictions, over all nodes.
const MAX_EVICTIONS: u32 = 64;

/// Time that a process waits at shutdown for evictions in flight.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The drain controller.
struct Drainer {
    context: Arc<Context>,
    reporter: Reporter,
    shutdown: Shutdown,
    /// Notifies waiting drains when their node changes.
    notifiers: DrainNotifiers,
    /// One permit for each eviction.
    evictions: Arc<Semaphore>,
    /// Invalid timeouts that were last reported for each pool.
    reported_timeouts: Mutex<BTreeMap<String, Vec<BadTimeout>>>,
}

/// Runs the drain controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let queue: Arc<Queue<String>> = Arc::new(Queue::new());
    context.health.queue("drain", &queue, Work::Long);
    let (notifiers, delay) = (DrainNotifiers::default(), context.delays.drain);
    let (nodes, woken) = (queue.clone(), notifiers.clone());
    context.caches.nodes.on_change(move |change| {
        if let Some(node) = change.object().filter(|_| node_matters(&change)) {
            woken.notify(&node.name_any());
            nodes.add_after(node.name_any(), delay);
        }
    });
    let reporter = context.reporter("nodecontroller");
    let drainer = Drainer {
        context,
        reporter,
        shutdown: shutdown.clone(),
        notifiers,
        evictions: Arc::new(Semaphore::new(MAX_EVICTIONS as usize)),
        reported_timeouts: Mutex::default(),
    };
    queue.run(DRAIN_CONCURRENCY, &shutdown, |node| reconcile(&drainer, node)).await;
    let completed = drainer.evictions.acquire_many(MAX_EVICTIONS);
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, completed).await.is_err() {
        warn!("Evictions still in flight {} seconds after shutdown", SHUTDOWN_TIMEOUT.as_secs());
    }
}

fn node_matters(change: &Change<'_, Node>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    drain_request(before) != drain_request(after) || is_cordoned(before) != is_cordoned(after)
}

fn drain_request(node: &Node) -> PendingRequest {
    drain::pending_request(&handshake(node))
}

fn handshake(node: &Node) -> Handshake<'_> {
    Handshake::of(node.metadata.annotations.as_ref())
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

async fn reconcile(drainer: &Drainer, name: String) -> Reconciled {
    let Some(node) = drainer.context.caches.nodes.get(&name) else { return Reconciled::Done };
    let outcome = match drain_request(&node) {
        PendingRequest::None => {
            drainer.context.metrics.clear_drain_error(&name);
            return Reconciled::Done;
        }
        PendingRequest::Invalid { text, .. } => {
            drainer.report_unknown_request(&node, &text).await;
            return Reconciled::Retry;
        }
        PendingRequest::Request(request) => match request.verb {
            DrainVerb::Uncordon => drainer.uncordon(&node).await,
            DrainVerb::Drain => drainer.drain(&node).await,
        },
    };
    outcome.unwrap_or_else(|error| {
        warn!(node = name, error = chain(&error), "Failed to handle drain request");
        Reconciled::after(&error)
    })
}

impl Drainer {
    /// Removes the cordon, if it belongs to the controller, and acknowledges the request.
    async fn uncordon(&self, node: &Node) -> Result<Reconciled, ActError> {
        self.count_end(&node.name_any(), Action::Uncordon);
        // One write, so that the request is never acknowledged before the node is schedulable.
        let mut patch = json!({"metadata": {"annotations": acknowledgement(node)}});
        let is_ours = handshake(node).owns_cordon();
        if let Some(patch) = patch.as_object_mut().filter(|_| is_ours) {
            patch.insert("spec".to_owned(), json!({"unschedulable": null}));
        }
        self.patch(node, patch, Precondition::Any)
            .await
            .map_err(|source| ActError::Uncordon { node: node.name_any(), source })?;
        if is_ours {
            info!(node = node.name_any(), "Uncordoned node");
        } else if is_cordoned(node) {
            info!(node = node.name_any(), "Kept a cordon that the controller has not set");
        }
        Ok(Reconciled::Done)
    }

    async fn drain(&self, node: &Node) -> Result<Reconciled, ActError> {
        let name = node.name_any();
        let limits = self.resolve_limits(node).await;
        let mut record = self.cordon(node).await?;
        let age = self.age(&record);
        let was_overdue = self.report_overdue(node, &limits, age).await;
        let pods = evict::list_pods_to_evict(&self.context, &name).await?;
        if !pods.is_empty()
            && is_fresh(&record)
            && let Some(text) = feasibility::fetch_blockers(&self.context, &name, &pods).await
        {
            self.reporter.publish(&Note::warning(node, "DrainBlocked", text)).await;
        }
        let time = drain::attempt_time(&limits, age);
        match evict::run_attempt(self, node, &pods, &mut record, time).await? {
            Attempt::Empty => self.finish(node).await,
            Attempt::Superseded => Ok(Reconciled::RequeueAfter(Duration::ZERO)),
            Attempt::Blocked => {
                record.attempts = record.attempts.saturating_add(1);
                self.write_record(node, &record).await?;
                if !was_overdue {
                    self.report_overdue(node, &limits, self.age(&record)).await;
                }
                Ok(Reconciled::RequeueAfter(
                    self.report_failed_attempt(node, &record, &limits).await,
                ))
            }
        }
    }

    /// Cordons the node, unless it is cordoned and its drain is in progress.
    ///
    /// The drain of a node that was uncordoned in the meantime starts anew: pods may have come
    /// back.
    async fn cordon(&self, node: &Node) -> Result<DrainRecord, ActError> {
        let request = request(node);
        let known = drain_record(node).filter(|_| is_cordoned(node));
        let record = match known {
            Some(record) if record.request == request => return Ok(record),
            // The daemon requests the drain for another config now; it is still the same drain.
            Some(record) => DrainRecord { request, ..record },
            None => {
                let since = Time(self.context.clock.now());
                DrainRecord { request, since, attempts: 0, blockers: Vec::new(), more: 0 }
            }
        };
        let mut annotations = record_annotation(&record);
        // An uncordon that was acknowledged earlier is not one of this cordon: if the daemon
        // withdraws its request, it has to wait for a new acknowledgement.
        annotations.insert(annotation::LAST_APPLIED_DRAIN.name().to_owned(), None);
        let patch = json!({
            "spec": {"unschedulable": true},
            "metadata": {"annotations": annotations},
        });
        self.patch(node, patch, Precondition::Any)
            .await
            .map_err(|source| ActError::Cordon { node: node.name_any(), source })?;
        // By now the cache has the written node, or a newer one.
        let now = self.context.caches.nodes.get(&node.name_any());
        if now.is_some_and(|now| !is_cordoned(&now)) {
            return Err(ActError::NotCordoned { node: node.name_any() });
        }
        info!(node = node.name_any(), "Cordoned node");
        Ok(record)
    }

    /// Acknowledges the request, unless the node was uncordoned in the meantime.
    async fn finish(&self, node: &Node) -> Result<Reconciled, ActError> {
        let name = node.name_any();
        let Some(now) = self.context.caches.nodes.get(&name) else { return Ok(Reconciled::Done) };
        if !is_cordoned(&now) || request(&now) != request(node) {
            // Pods may have come back, so the drain is not complete.
            warn!(node = name, "Node was uncordoned during its drain; draining again");
            return Ok(Reconciled::RequeueAfter(Duration::ZERO));
        }
        // If the write fails, the next reconcile counts again.
        self.count_end(&name, Action::Drain);
        let patch = json!({"metadata": {"annotations": acknowledgement(node)}});
        let version = now.resource_version().unwrap_or_default();
        // A change in the meantime may have removed the cordon: then the write conflicts and the
        // drain is reconciled again.
        self.patch(node, patch, Precondition::Unchanged(&version))
            .await
            .map_err(|source| ActError::AcknowledgeDrain { node: name.clone(), source })?;
        info!(node = name, "Drained node");
        Ok(Reconciled::Done)
    }

    /// Counts the end of a drain or uncordon before the request is acknowledged.
    fn count_end(&self, node: &str, action: Action) {
        let now = self.context.clock.now();
        self.context.count_node(node, |metrics| {
            metrics.clear_drain_error(node);
            metrics.record_action(action, node, now);
        });
    }

    /// Reports a drain that exceeds its timeout; returns true if it does.
    async fn report_overdue(&self, node: &Node, limits: &Limits, age: Duration) -> bool {
        let name = node.name_any();
        let Some(text) = drain::overdue(&name, limits, age) else { return false };
        self.context.count_node(&name, |metrics| metrics.set_drain_error(&name));
        self.reporter.publish(&Note::warning(node, "DrainFailed", text)).await;
        true
    }

    /// Publishes an event about a drain request that cannot be parsed.
    async fn report_unknown_request(&self, node: &Node, text: &str) {
        let (name, key) = (node.name_any(), annotation::DESIRED_DRAIN.name());
        let verb = text.split('-').next().unwrap_or_default();
        let text = format!(
            "node {name}: non-recognized drain verb detected {verb}; the annotation {key} must \
             begin with drain- or uncordon-"
        );
        self.reporter.publish(&Note::warning(node, "DrainRequestUnknown", text)).await;
    }

    /// Returns the time limits for the drain of this node. Publishes an event once for each invalid
    /// timeout of its pool.
    async fn resolve_limits(&self, node: &Node) -> Limits {
        let default = Limits { attempt: self.context.pace.attempt_timeout, ..Limits::REFERENCE };
        let found = {
            let node_index = self.context.enqueuer.node_index();
            node_index.pool_of(&node.name_any()).ok().flatten().map(str::to_owned)
        };
        let pool = found.and_then(|name| self.context.caches.pools.get(&name));
        let Some(pool) = pool else { return default };
        let (limits, faults) = Limits::of(pool.annotations(), default);
        let known = {
            let mut reported =
                self.reported_timeouts.lock().unwrap_or_else(PoisonError::into_inner);
            reported.insert(pool.name_any(), faults.clone()).unwrap_or_default()
        };
        for fault in faults.iter().filter(|fault| !known.contains(fault)) {
            let text = fault.text(&pool.name_any());
            self.reporter.publish(&Note::warning(&*pool, "DrainTimeoutInvalid", text)).await;
        }
        limits
    }

    /// Reports a failed drain attempt and returns the pause before the next one.
    async fn report_failed_attempt(
        &self,
        node: &Node,
        record: &DrainRecord,
        limits: &Limits,
    ) -> Duration {
        let why = blockers::describe(record);
        let RetryDecision { pause, warning } = drain::after_failure(limits, self.age(record), &why);
        warn!(node = node.name_any(), why, pause = pause.as_secs(), "Drain attempt failed");
        if let Some(text) = warning {
            self.reporter.publish(&Note::warning(node, "DrainThresholdExceeded", text)).await;
        }
        pause
    }

    /// Writes the record of the drain to the node.
    async fn write_record(&self, node: &Node, record: &DrainRecord) -> Result<(), ActError> {
        self.patch(
            node,
            json!({"metadata": {"annotations": record_annotation(record)}}),
            Precondition::Any,
        )
        .await
        .map_err(|source| ActError::RecordDrain { node: node.name_any(), source })
    }

    async fn patch(
        &self,
        node: &Node,
        patch: Value,
        guard: Precondition<'_>,
    ) -> Result<(), CallError> {
        let api = Api::<LeanNode>::all(self.context.client.clone());
        let patched = apply::merge(&api, &node.name_any(), patch, guard).await?;
        self.context.caches.nodes.learn(patched.into());
        Ok(())
    }

    fn age(&self, record: &DrainRecord) -> Duration {
        let Time(since) = &record.since;
        let age = self.context.clock.now().duration_since(*since);
        // A clock that was set back does not make a drain older.
        Duration::try_from(age).unwrap_or_default()
    }
}

/// Returns the drain record of the node, for any request.
fn drain_record(node: &Node) -> Option<DrainRecord> {
    annotation::DRAIN_RECORD.get(node.annotations()).unwrap_or_else(|error| {
        warn!(
            node = node.name_any(),
            error = chain(&error),
            "Invalid drainRecord; restarting the drain"
        );
        None
    })
}

/// Returns true if no eviction was attempted in this drain yet.
fn is_fresh(record: &DrainRecord) -> bool {
    record.attempts == 0 && record.blockers.is_empty()
}

fn request(node: &Node) -> String {
    node.annotations().get(annotation::DESIRED_DRAIN.name()).cloned().unwrap_or_default()
}

fn record_annotation(record: &DrainRecord) -> Changes {
    Changes::from([(annotation::DRAIN_RECORD.name().to_owned(), Some(record.to_string()))])
}

/// Returns the annotations that acknowledge the node's request.
fn acknowledgement(node: &Node) -> Changes {
    Changes::from([
        (annotation::LAST_APPLIED_DRAIN.name().to_owned(), Some(request(node))),
        (annotation::DRAIN_RECORD.name().to_owned(), None),
    ])
}
