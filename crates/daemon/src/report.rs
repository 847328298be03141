//! Tells how an update goes, step by step, in the node's MachineConfigNode.
//!
//! Nothing waits for these writes and none of them can stop an update. What is to be said stands in
//! line until the API takes it; the order is kept. A MachineConfigNode that is made anew hears again
//! what was said since the update began. The controller makes the object and writes to the same list,
//! so each write is made from what was read and is refused when somebody was faster.

use std::{collections::VecDeque, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use mco_api::{
    MachineConfigNode, NodeName,
    condition::NodeCondition,
    machine_config_node::{ConfigVersion, MachineConfigNodeStatus, PinnedImageSetState},
};
use mco_cluster::{
    CallError, Clock,
    apply::{self, Guard},
    error::Refused,
    report::chain,
};
use mco_core::{
    progress::NOT_YET_SET,
    status::machine_config_node::{self as steps, DrainTexts, Event},
};
use serde_json::json;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use crate::cluster::follow::{Listening, follow_object};

/// As whom the daemon owns what it says.
const MANAGER: &str = "machine-config-daemon";

/// More than any update has to say; of a flood the newest counts.
const LONGEST_LINE: usize = 64;

/// A write that failed is tried again after one second, then two, and so on up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// What an API server says of an object that it would never take.
const INVALID: Refused = Refused::Other(422);

/// Somebody else may be faster a few times; then there is a pause.
const TIMES: usize = 5;

/// Something to say of the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// What happened.
    pub what: What,
    /// The config that the node has, as its annotation says.
    pub current: String,
    /// The config that it is to have.
    pub desired: String,
}

/// What happened to the node.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A step of an update.
    Event(Event),
    /// A drain is over; whoever drained may not have said so yet.
    DrainOver(DrainTexts),
    /// How far each set of pinned images is, and all of them together.
    Pins(Vec<PinnedImageSetState>, steps::PinEvent),
}

/// Where to say it; clones say it in the same place.
#[derive(Clone, Debug)]
pub struct Mouth(mpsc::UnboundedSender<Message>);

#[derive(Debug)]
enum Message {
    Say(Box<Said>),
    Flush(oneshot::Sender<()>),
}

/// What has yet to be said.
#[derive(Debug)]
pub struct Ear(mpsc::UnboundedReceiver<Message>);

/// A way to say things, and the other end of it.
#[must_use]
pub fn channel() -> (Mouth, Ear) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Mouth(sender), Ear(receiver))
}

impl Mouth {
    /// Says something; never waits.
    pub fn say(&self, said: Said) {
        // Nobody listens while the daemon ends, and that is no loss.
        drop(self.0.send(Message::Say(Box::new(said))));
    }

    /// Waits until everything is said, at most so long.
    pub async fn flush(&self, limit: Duration) {
        let (done, all) = oneshot::channel();
        if self.0.send(Message::Flush(done)).is_ok() {
            drop(tokio::time::timeout(limit, all).await);
        }
    }
}

/// Keeps `seen` at the node's MachineConfigNode; ends when nobody listens any longer.
pub(crate) async fn follow(
    client: Client,
    node: NodeName,
    seen: watch::Sender<Option<MachineConfigNode>>,
) {
    let api: Api<MachineConfigNode> = Api::all(client);
    let tell = |object: Option<MachineConfigNode>| {
        if seen.is_closed() {
            return Listening::No;
        }
        seen.send_replace(object);
        Listening::Yes
    };
    Box::pin(follow_object(api, node.as_str(), tell)).await;
}

/// Writes what is said until nobody is left to say anything.
pub(crate) async fn run(
    client: Client,
    node: NodeName,
    clock: Clock,
    ear: Ear,
    seen: watch::Receiver<Option<MachineConfigNode>>,
) {
    let (api, known) = (Api::all(client), seen.borrow().clone());
    let teller =
        Teller { api, node, clock, known, line: Line::default(), failures: 0, flushes: Vec::new() };
    teller.run(ear.0, seen).await;
}

/// What has yet to be said, and what was since the update began.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Said>,
    history: Vec<Said>,
    /// The config of the update that is told about.
    target: Option<String>,
}

impl Line {
    fn push(&mut self, said: Said) {
        if self.waiting.back() != Some(&said) {
            self.waiting.push_back(said);
        }
        while self.waiting.len() > LONGEST_LINE {
            self.waiting.pop_front();
        }
    }

    fn said(&mut self) {
        let Some(said) = self.waiting.pop_front() else { return };
        if said.what == What::Event(Event::NeedsUpdate) {
            self.target = Some(said.desired.clone());
        }
        if matches!(said.what, What::Event(Event::UpToDate | Event::NeedsUpdate)) {
            self.history.clear();
        }
        if self.history.last() != Some(&said) && self.history.len() < LONGEST_LINE {
            self.history.push(said);
        }
    }

    fn again(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting.extend(self.history.drain(..).chain(waiting));
    }

    /// Whether an update that is said to be needed has been told of already.
    fn is_told(&self, desired: &str, conditions: &[Condition]) -> bool {
        let is_open = conditions.iter().any(|condition| {
            condition.type_ == NodeCondition::Updated.as_str()
                && condition.status == "False"
                && condition.reason == NodeCondition::Updated.as_str()
        });
        // One that a daemon before this one told of goes on.
        let is_same = self.target.as_deref().is_none_or(|target| target == desired);
        is_open && is_same
    }
}

struct Teller {
    api: Api<MachineConfigNode>,
    node: NodeName,
    clock: Clock,
    known: Option<MachineConfigNode>,
    line: Line,
    failures: u32,
    flushes: Vec<oneshot::Sender<()>>,
}

/// Why something was not said.
enum Unsaid {
    /// There is no MachineConfigNode.
    Nowhere,
    /// The API did not take it.
    Refused(CallError),
}

impl Teller {
    async fn run(
        mut self,
        mut ear: mpsc::UnboundedReceiver<Message>,
        mut seen: watch::Receiver<Option<MachineConfigNode>>,
    ) {
        loop {
            let retry = self.catch_up().await;
            tokio::select! {
                message = ear.recv() => match message {
                    Some(Message::Say(said)) => self.line.push(*said),
                    Some(Message::Flush(done)) => self.flushes.push(done),
                    None => return,
                },
                changed = seen.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let object = seen.borrow_and_update().clone();
                    self.learn(object);
                }
                () = at(retry) => {}
            }
        }
    }

    /// Says all that is in line; when to try again where that does not work.
    async fn catch_up(&mut self) -> Option<Instant> {
        while let Some(said) = self.line.waiting.front().cloned() {
            match self.tell(&said).await {
                Ok(()) => {
                    self.failures = 0;
                    self.line.said();
                }
                Err(Unsaid::Nowhere) => break,
                // It will never be taken, and must not hold up what comes after it.
                Err(Unsaid::Refused(error)) if error.refused() == Some(INVALID) => {
                    warn!("MachineConfigNode {} does not take it: {}", self.node, chain(&error));
                    self.line.waiting.pop_front();
                }
                Err(Unsaid::Refused(error)) => {
                    if self.failures == 0 {
                        warn!("Cannot write MachineConfigNode {}: {}", self.node, chain(&error));
                    } else {
                        debug!("Cannot write MachineConfigNode {}: {}", self.node, chain(&error));
                    }
                    let pause = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST_PAUSE);
                    self.failures = self.failures.saturating_add(1);
                    return Some(Instant::now() + pause);
                }
            }
        }
        // All is said, or there is nowhere to say it; whoever asked may have lost patience.
        for done in self.flushes.drain(..) {
            _ = done.send(());
        }
        None
    }

    fn learn(&mut self, object: Option<MachineConfigNode>) {
        let is_other = match (&self.known, &object) {
            (Some(known), Some(object)) => known.uid() != object.uid(),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        // A watch may be behind our own writes.
        let is_older = match (&self.known, &object) {
            (Some(known), Some(object)) => !is_other && version(object) < version(known),
            (None, _) | (_, None) => false,
        };
        if !is_older {
            self.known = object;
        }
        if is_other {
            self.line.again();
        }
    }

    async fn tell(&mut self, said: &Said) -> Result<(), Unsaid> {
        for time in 1.. {
            match self.try_to_tell(said).await {
                Err(Unsaid::Refused(error)) if time < TIMES => match error.refused() {
                    Some(Refused::Conflict) => self.refresh().await?,
                    Some(Refused::NotFound) => {
                        self.known = None;
                        return Err(Unsaid::Nowhere);
                    }
                    _ => return Err(Unsaid::Refused(error)),
                },
                other => return other,
            }
        }
        Ok(())
    }

    async fn refresh(&mut self) -> Result<(), Unsaid> {
        let found = self.api.get_opt(self.node.as_str()).await;
        let found = found.map_err(|error| Unsaid::Refused(error.into()))?;
        self.learn(found);
        if self.known.is_some() { Ok(()) } else { Err(Unsaid::Nowhere) }
    }

    async fn try_to_tell(&mut self, said: &Said) -> Result<(), Unsaid> {
        let before = self.known.as_ref().ok_or(Unsaid::Nowhere)?;
        let conditions =
            before.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        let events = match &said.what {
            What::Event(Event::NeedsUpdate) if self.line.is_told(&said.desired, &conditions) => {
                Vec::new()
            }
            What::Event(event) => vec![event.clone()],
            What::DrainOver(texts) => {
                steps::catch_up(&conditions, texts).into_iter().map(Event::Drain).collect()
            }
            What::Pins(sets, event) => {
                return self.write(said, Some(sets), &Event::Pins(*event)).await;
            }
        };
        for event in events {
            self.write(said, None, &event).await?;
        }
        Ok(())
    }

    async fn write(
        &mut self,
        said: &Said,
        sets: Option<&Vec<PinnedImageSetState>>,
        event: &Event,
    ) -> Result<(), Unsaid> {
        let Some(known) = &self.known else { return Err(Unsaid::Nowhere) };
        let before = known.status.clone().unwrap_or_default();
        let now = Time(self.clock.now());
        let after = status(&before, known, said, sets, event, &now);
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
        let written =
            apply::own_status(&self.api, name, MANAGER, object, Guard::Unchanged(&version)).await;
        self.known = Some(written.map_err(Unsaid::Refused)?);
        Ok(())
    }
}

/// The status after an event; equal to the one before if it says nothing new.
fn status(
    before: &MachineConfigNodeStatus,
    object: &MachineConfigNode,
    said: &Said,
    sets: Option<&Vec<PinnedImageSetState>>,
    event: &Event,
    now: &Time,
) -> MachineConfigNodeStatus {
    let mut after = before.clone();
    let node = object.name_any();
    if let Some(conditions) = steps::note(&before.conditions, &node, &said.desired, event, now) {
        after.conditions = conditions;
    }
    // Compat: a config is desired only once it is known to be possible (pkg/upgrademonitor).
    let is_refused = steps::status(&after.conditions, &NodeCondition::UpdatePrepared) == "Unknown";
    let desired = if is_refused || said.desired.is_empty() { NOT_YET_SET } else { &said.desired };
    after.config_version =
        Some(ConfigVersion { current: said.current.clone(), desired: desired.to_owned() });
    // It must not go down, and the reference says one too many.
    let generation = object.metadata.generation.unwrap_or(1);
    after.observed_generation = before.observed_generation.max(generation);
    if let Some(sets) = sets {
        after.pinned_image_sets.clone_from(sets);
    }
    after
}

fn version(object: &MachineConfigNode) -> u64 {
    object.resource_version().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
