//! Writes the status of the node's MachineConfigNode: conditions, config version and pinned image
//! sets.
//!
//! Status updates are queued and written in order by a background task. No sync waits for a write,
//! and a failed write never stops an update. If the MachineConfigNode is deleted and created again, or
//! etcd is restored from a backup, the updates since the start of the current update are written again. The controller creates the
//! object and writes to the same list of conditions, so each write is built from the version that
//! was read and fails with a conflict if that version is stale.

use std::{collections::VecDeque, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Client, Resource as _, ResourceExt as _};
use mco_api::{
    MachineConfigNode, NodeName,
    condition::NodeCondition,
    machine_config_node::{ConfigVersion, MachineConfigNodeStatus, PinnedImageSetState},
};
use mco_cluster::{
    Api, CallError, Clock,
    apply::{self, Precondition},
    error::Rejection,
    report::chain,
    watch::Config as WatchConfig,
};
use mco_core::{
    machine_config_node::NOT_YET_SET,
    status::update_conditions::{self as steps, DrainAnnotations, UpdateEvent},
};
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use crate::cluster::object_watch::{AfterChange, watch_one};

/// Field manager of the daemon's writes.
const MANAGER: &str = "machine-config-daemon";

/// Longest queue of updates, more than any node update needs; the oldest are dropped beyond it.
const MAX_PENDING: usize = 64;

/// Longest pause between retries of a failed write; the first is one second, each further one twice
/// as long.
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// The API server's status code for an object that violates the schema.
const INVALID: Rejection = Rejection::Other(422);

/// Time for which the watch may be behind the daemon's own writes. After it the object is read: if the
/// API server itself has an older version, etcd was restored from a backup.
const MAX_LAG: Duration = Duration::from_secs(10);

/// Attempts after a conflict before the writer pauses.
const MAX_ATTEMPTS: usize = 5;

/// A status update of the node's MachineConfigNode.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusUpdate {
    /// The change to report.
    pub change: StatusChange,
    /// Value of the node's currentConfig annotation.
    pub current: String,
    /// Value of the node's desiredConfig annotation.
    pub desired: String,
}

/// A change of the status.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusChange {
    /// An event of an update.
    Event(UpdateEvent),
    /// A completed drain, which the drain controller may not have reported yet.
    DrainCompleted(DrainAnnotations),
    /// The state of each pinned image set, and the event for all of them.
    PinnedImages(Vec<PinnedImageSetState>, steps::PinnedImagesEvent),
}

/// Queues status updates; clones share the queue.
#[derive(Clone, Debug)]
pub struct StatusSender(mpsc::UnboundedSender<Message>);

#[derive(Debug)]
enum Message {
    Update(Box<StatusUpdate>),
    Flush(oneshot::Sender<()>),
}

/// The receiving end of the queue.
#[derive(Debug)]
pub struct StatusReceiver(mpsc::UnboundedReceiver<Message>);

/// Builds a queue of status updates.
#[must_use]
pub fn channel() -> (StatusSender, StatusReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (StatusSender(sender), StatusReceiver(receiver))
}

impl StatusSender {
    /// Queues a status update; never waits.
    pub fn send(&self, update: StatusUpdate) {
        // The receiver is gone only while the daemon stops.
        drop(self.0.send(Message::Update(Box::new(update))));
    }

    /// Waits until all queued updates are written, at most for `limit`.
    pub async fn flush(&self, limit: Duration) {
        let (done, all) = oneshot::channel();
        if self.0.send(Message::Flush(done)).is_ok()
            && tokio::time::timeout(limit, all).await.is_err()
        {
            warn!(?limit, "Failed to write all updates of the MachineConfigNode in time");
        }
    }
}

/// Keeps `observed` at the node's MachineConfigNode; ends when all receivers are dropped.
pub(crate) async fn watch_object(
    client: Client,
    node: NodeName,
    config: WatchConfig,
    observed: watch::Sender<Option<MachineConfigNode>>,
) {
    let api: Api<MachineConfigNode> = Api::all(client);
    let on_change = |object: Option<MachineConfigNode>| {
        if observed.is_closed() {
            return AfterChange::Stop;
        }
        observed.send_replace(object);
        AfterChange::Continue
    };
    Box::pin(watch_one(api, node.as_str(), config, on_change)).await;
}

/// Writes queued updates until all senders are dropped.
pub(crate) async fn write_updates(
    client: Client,
    node: NodeName,
    clock: Clock,
    receiver: StatusReceiver,
    observed: watch::Receiver<Option<MachineConfigNode>>,
) {
    let (api, known) = (Api::all(client), observed.borrow().clone());
    let writer = StatusWriter {
        api,
        node,
        clock,
        known,
        queue: UpdateQueue::default(),
        failures: 0,
        flushes: Vec::new(),
        behind_since: None,
    };
    writer.run(receiver.0, observed).await;
}

/// Updates to write, and those written since the current node update began.
#[derive(Debug, Default)]
struct UpdateQueue {
    pending: VecDeque<StatusUpdate>,
    history: Vec<StatusUpdate>,
    /// Target config of the node update that is being reported.
    target: Option<String>,
}

impl UpdateQueue {
    fn push(&mut self, update: StatusUpdate) {
        if self.pending.back() != Some(&update) {
            self.pending.push_back(update);
        }
        while self.pending.len() > MAX_PENDING {
            self.pending.pop_front();
        }
    }

    fn mark_written(&mut self) {
        let Some(update) = self.pending.pop_front() else { return };
        if update.change == StatusChange::Event(UpdateEvent::NeedsUpdate) {
            self.target = Some(update.desired.clone());
        }
        if matches!(
            update.change,
            StatusChange::Event(UpdateEvent::UpToDate | UpdateEvent::NeedsUpdate)
        ) {
            self.history.clear();
        }
        if self.history.last() != Some(&update) && self.history.len() < MAX_PENDING {
            self.history.push(update);
        }
    }

    fn replay(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.pending.extend(self.history.drain(..).chain(pending));
    }

    /// Returns true if the conditions already report that an update to `desired` is needed.
    fn is_reported(&self, desired: &str, conditions: &[Condition]) -> bool {
        let is_open = conditions.iter().any(|condition| {
            condition.type_ == NodeCondition::Updated.as_str()
                && condition.status == "False"
                && condition.reason == NodeCondition::Updated.as_str()
        });
        // An update that an earlier daemon reported goes on.
        let is_same = self.target.as_deref().is_none_or(|target| target == desired);
        is_open && is_same
    }
}

struct StatusWriter {
    api: Api<MachineConfigNode>,
    node: NodeName,
    clock: Clock,
    known: Option<MachineConfigNode>,
    queue: UpdateQueue,
    failures: u32,
    flushes: Vec<oneshot::Sender<()>>,
    /// Since when the watch is behind `known`.
    behind_since: Option<Instant>,
}

/// A failed status write.
enum WriteError {
    /// The MachineConfigNode does not exist.
    NotFound,
    /// The API server refused the write or did not respond.
    Call(CallError),
}

impl StatusWriter {
    async fn run(
        mut self,
        mut receiver: mpsc::UnboundedReceiver<Message>,
        mut observed: watch::Receiver<Option<MachineConfigNode>>,
    ) {
        loop {
            let retry = self.write_pending().await;
            let lag_limit = self.behind_since.map(|since| since + MAX_LAG);
            tokio::select! {
                message = receiver.recv() => match message {
                    Some(Message::Update(update)) => self.queue.push(*update),
                    Some(Message::Flush(done)) => self.flushes.push(done),
                    None => return,
                },
                changed = observed.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let object = observed.borrow_and_update().clone();
                    self.observe(object);
                }
                () = sleep_until_some(retry) => {}
                () = sleep_until_some(lag_limit) => {
                    self.behind_since = Some(Instant::now());
                    // A failed read is repeated after the same time.
                    drop(self.refresh().await);
                }
            }
        }
    }

    /// Writes all queued updates; returns the time of the next retry if a write failed.
    async fn write_pending(&mut self) -> Option<Instant> {
        while let Some(update) = self.queue.pending.front().cloned() {
            match self.write(&update).await {
                Ok(()) => {
                    self.failures = 0;
                    self.queue.mark_written();
                }
                Err(WriteError::NotFound) => break,
                // An invalid update never succeeds and must not block later ones.
                Err(WriteError::Call(error)) if error.rejection() == Some(INVALID) => {
                    let error = chain(&error);
                    warn!(node = %self.node, error, "Dropped an invalid status update");
                    self.queue.pending.pop_front();
                }
                Err(WriteError::Call(error)) => {
                    let (node, error) = (&self.node, chain(&error));
                    if self.failures == 0 {
                        warn!(%node, error, "Failed to write MachineConfigNode status");
                    } else {
                        debug!(%node, error, "Failed to write MachineConfigNode status");
                    }
                    let pause = Duration::from_secs(1 << self.failures.min(6)).min(MAX_BACKOFF);
                    self.failures = self.failures.saturating_add(1);
                    return Some(Instant::now() + pause);
                }
            }
        }
        // The queue is empty or the object does not exist; a waiter may have timed out already.
        for done in self.flushes.drain(..) {
            _ = done.send(());
        }
        None
    }

    /// Takes the object from the watch, which may be behind the daemon's own writes.
    fn observe(&mut self, object: Option<MachineConfigNode>) {
        let is_behind = match (&self.known, &object) {
            (Some(known), Some(object)) => is_older(object, known),
            (None, _) | (_, None) => false,
        };
        if is_behind {
            self.behind_since.get_or_insert_with(Instant::now);
        } else {
            self.replace(object);
        }
    }

    /// Takes the object as the API server has it, and writes the updates again if it is another one.
    fn replace(&mut self, object: Option<MachineConfigNode>) {
        let is_other = match (&self.known, &object) {
            (Some(known), Some(object)) if is_older(object, known) => {
                info!(node = %self.node, "API server has an older MachineConfigNode; writing its status again");
                true
            }
            (Some(known), Some(object)) => known.uid() != object.uid(),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        self.known = object;
        self.behind_since = None;
        if is_other {
            self.queue.replay();
        }
    }

    async fn write(&mut self, update: &StatusUpdate) -> Result<(), WriteError> {
        for time in 1.. {
            match self.try_write(update).await {
                Err(WriteError::Call(error)) if time < MAX_ATTEMPTS => match error.rejection() {
                    Some(Rejection::Conflict) => self.refresh().await?,
                    Some(Rejection::NotFound) => {
                        self.known = None;
                        return Err(WriteError::NotFound);
                    }
                    _ => return Err(WriteError::Call(error)),
                },
                other => return other,
            }
        }
        Ok(())
    }

    async fn refresh(&mut self) -> Result<(), WriteError> {
        let found = self.api.get_opt(self.node.as_str()).await;
        let found = found.map_err(|error| WriteError::Call(error.into()))?;
        self.replace(found);
        if self.known.is_some() { Ok(()) } else { Err(WriteError::NotFound) }
    }

    async fn try_write(&mut self, update: &StatusUpdate) -> Result<(), WriteError> {
        let before = self.known.as_ref().ok_or(WriteError::NotFound)?;
        let conditions =
            before.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let events = match &update.change {
            StatusChange::Event(UpdateEvent::NeedsUpdate)
                if self.queue.is_reported(&update.desired, &conditions) =>
            {
                Vec::new()
            }
            StatusChange::Event(event) => vec![event.clone()],
            StatusChange::DrainCompleted(texts) => steps::missing_drain_events(&conditions, texts)
                .into_iter()
                .map(UpdateEvent::Drain)
                .collect(),
            StatusChange::PinnedImages(sets, event) => {
                return self.write_event(update, Some(sets), &UpdateEvent::Pins(*event)).await;
            }
        };
        for event in events {
            self.write_event(update, None, &event).await?;
        }
        Ok(())
    }

    async fn write_event(
        &mut self,
        update: &StatusUpdate,
        sets: Option<&Vec<PinnedImageSetState>>,
        event: &UpdateEvent,
    ) -> Result<(), WriteError> {
        let Some(known) = &self.known else { return Err(WriteError::NotFound) };
        let before = known.status.clone().unwrap_or_default();
        let now = Time(self.clock.now());
        let after = status(&before, known, update, sets, event, &now);
        if after == before {
            return Ok(());
        }
        let object = json!({
            "apiVersion": MachineConfigNode::api_version(&()),
            "kind": MachineConfigNode::kind(&()),
            "status": after,
        });
        let version = known.resource_version().unwrap_or_default();
        let name = self.node.as_str();
        let written = apply::apply_status(
            &self.api,
            name,
            MANAGER,
            object,
            Precondition::Unchanged(&version),
        )
        .await;
        self.known = Some(written.map_err(WriteError::Call)?);
        Ok(())
    }
}

/// Returns the status after an event; equal to `before` if the event changes nothing.
fn status(
    before: &MachineConfigNodeStatus,
    object: &MachineConfigNode,
    update: &StatusUpdate,
    sets: Option<&Vec<PinnedImageSetState>>,
    event: &UpdateEvent,
    now: &Time,
) -> MachineConfigNodeStatus {
    let mut after = before.clone();
    let node = object.name_any();
    if let Some(conditions) =
        steps::apply_event(&before.conditions, &node, &update.desired, event, now)
    {
        after.conditions = conditions;
    }
    // Compat: a config is desired only once it is known to be possible (pkg/upgrademonitor).
    let is_refused = steps::status(&after.conditions, &NodeCondition::UpdatePrepared) == "Unknown";
    let desired =
        if is_refused || update.desired.is_empty() { NOT_YET_SET } else { &update.desired };
    after.config_version =
        Some(ConfigVersion { current: update.current.clone(), desired: desired.to_owned() });
    // The API server refuses a lower value. Different from the reference, which reports one too
    // many.
    let generation = object.metadata.generation.unwrap_or(1);
    after.observed_generation = before.observed_generation.max(generation);
    if let Some(sets) = sets {
        after.pinned_image_sets.clone_from(sets);
    }
    after
}

/// Returns true if an object is an older version of another.
fn is_older(object: &MachineConfigNode, other: &MachineConfigNode) -> bool {
    object.uid() == other.uid() && version(object) < version(other)
}

fn version(object: &MachineConfigNode) -> u64 {
    object.resource_version().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

async fn sleep_until_some(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
