//! What a MachineConfigNode says: each step of an update as a condition.
//!
//! The daemon tells what happened and [`note`] says which conditions follow; the controller puts the
//! steps of a drain on the same list with [`put`]. Types, reasons and messages are the reference's. Its
//! own oddities are left out: the time of a condition moves only with its status, and nothing is
//! written that changes nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mco_api::condition::NodeCondition;

/// Conditions in the order in which they are written.
const ALL: [NodeCondition; 14] = [
    NodeCondition::Updated,
    NodeCondition::UpdatePrepared,
    NodeCondition::UpdateExecuted,
    NodeCondition::UpdatePostActionComplete,
    NodeCondition::UpdateComplete,
    NodeCondition::Resumed,
    NodeCondition::Cordoned,
    NodeCondition::Drained,
    NodeCondition::AppliedFilesAndOS,
    NodeCondition::RebootedNode,
    NodeCondition::Uncordoned,
    NodeCondition::NodeDegraded,
    NodeCondition::PinnedImageSetsDegraded,
    NodeCondition::PinnedImageSetsProgressing,
];

/// Something that happened to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It runs what it is to run.
    UpToDate,
    /// It is to run something else.
    NeedsUpdate,
    /// The change was looked at and can be made.
    Prepared(Drains),
    /// The change cannot be made; says why.
    NotPrepared {
        /// The config it has.
        from: String,
        /// The config it was to have.
        to: String,
        /// Why not.
        why: String,
    },
    /// Its pods were told to leave or to come back.
    Drain(DrainEvent),
    /// Files and system are being changed.
    Applying(Parts),
    /// They are changed.
    Applied(Parts),
    /// Nothing needs to be restarted.
    NoPostAction,
    /// A service was told.
    ServiceReloaded(String),
    /// A service was started anew.
    ServiceRestarted(String),
    /// It is about to reboot.
    Rebooting,
    /// It rebooted.
    Rebooted,
    /// It works with this config.
    Resumed(String),
    /// Something failed; says what.
    Degraded(String),
    /// It is well again.
    Recovered,
    /// Images are pulled ahead of time.
    Pins(PinEvent),
}

/// Something about images that are pulled ahead of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinEvent {
    /// They are being pulled.
    Pulling,
    /// All of them are there.
    Complete,
    /// Some could not be pulled.
    Failed,
}

/// Something that happened to the pods of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainEvent {
    /// They may stay.
    NotNeeded,
    /// The node is closed to new ones.
    Cordoned,
    /// It could not be closed; says why.
    CordonFailed(String),
    /// They are being moved away.
    Draining(DrainTexts),
    /// They are not all away; says why.
    Failed(DrainTexts, String),
    /// They are all away.
    Drained(DrainTexts),
    /// The node is open to pods again.
    Uncordoned,
    /// It could not be opened; says why.
    UncordonFailed(String),
}

/// Whether a change needs a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drains {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// What the drain controller is asked for and what it did last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainTexts {
    /// What it is asked for.
    pub desired: String,
    /// What it did last.
    pub last: String,
}

/// What of a node changes besides files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Whether the system does.
    pub system: bool,
    /// Whether the SSH keys do.
    pub keys: bool,
}

/// A condition as it is to be.
pub(crate) struct Mark {
    pub(crate) kind: NodeCondition,
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// The conditions of `node` after an event, or none if it says nothing new.
///
/// `desired` is the config that the node is to run.
#[must_use]
pub fn note(
    before: &[Condition],
    node: &str,
    desired: &str,
    event: &Event,
    now: &Time,
) -> Option<Vec<Condition>> {
    let mut after = complete(before, now);
    if matches!(event, Event::UpToDate | Event::NeedsUpdate) {
        reset(&mut after, desired, now);
    }
    put(&mut after, node, event, now);
    (after != before).then_some(after)
}

/// Puts what an event says on the list, and touches nothing else.
pub fn put(conditions: &mut Vec<Condition>, node: &str, event: &Event, now: &Time) {
    // Who drains may be late to tell. It speaks for the whole only until files change.
    let is_applied = status(conditions, &NodeCondition::AppliedFilesAndOS) != FALSE;
    let is_late = |mark: &Mark| {
        matches!(event, Event::Drain(_)) && is_applied && mark.kind == NodeCondition::UpdateExecuted
    };
    for mark in marks(node, event) {
        if !is_late(&mark) {
            set(conditions, mark, now);
        }
    }
}

/// What must still be said of a drain that is over, where nobody has said it: every step, in order.
#[must_use]
pub fn catch_up(conditions: &[Condition], texts: &DrainTexts) -> Vec<DrainEvent> {
    let mut missing = Vec::new();
    if status(conditions, &NodeCondition::Cordoned) != TRUE {
        missing.push(DrainEvent::Cordoned);
    }
    let drained = status(conditions, &NodeCondition::Drained);
    if drained == FALSE {
        missing.push(DrainEvent::Draining(texts.clone()));
    }
    if drained != TRUE {
        missing.push(DrainEvent::Drained(texts.clone()));
    }
    missing
}

/// What is known of a condition; what was never said does not hold.
#[must_use]
pub fn status(conditions: &[Condition], kind: &NodeCondition) -> &'static str {
    let found = conditions.iter().find(|condition| condition.type_ == kind.as_str());
    match found.map(|condition| condition.status.as_str()) {
        Some(TRUE) => TRUE,
        Some(UNKNOWN) => UNKNOWN,
        Some(_) | None => FALSE,
    }
}

/// All conditions, with those that are not there yet put in.
fn complete(before: &[Condition], now: &Time) -> Vec<Condition> {
    let mut all = before.to_vec();
    for kind in ALL {
        if !all.iter().any(|condition| condition.type_ == kind.as_str()) {
            set(&mut all, not_yet(kind), now);
        }
    }
    all
}

/// Ends the update that was: what held holds no longer, and says of which update it was.
fn reset(conditions: &mut [Condition], desired: &str, now: &Time) {
    // Whether the node waits is the controller's to say, and pulling images ahead is no step of an
    // update.
    let other = [
        NodeCondition::Updated,
        NodeCondition::Waiting,
        NodeCondition::PinnedImageSetsProgressing,
        NodeCondition::PinnedImageSetsDegraded,
    ];
    let of_update = |kind: &str| other.iter().all(|other| other.as_str() != kind);
    for condition in conditions.iter_mut().filter(|condition| of_update(&condition.type_)) {
        if condition.status != "False" {
            condition.message = format!("Action during update to {desired}: {}", condition.message);
            "False".clone_into(&mut condition.status);
            condition.last_transition_time = now.clone();
        }
    }
}

/// Sets one condition; the time moves only with the status.
pub(crate) fn set(conditions: &mut Vec<Condition>, mark: Mark, now: &Time) {
    let place = conditions.iter().position(|found| found.type_ == mark.kind.as_str());
    let Some(condition) = place.and_then(|place| conditions.get_mut(place)) else {
        conditions.push(Condition {
            type_: mark.kind.as_str().to_owned(),
            status: mark.status.to_owned(),
            reason: mark.reason,
            message: mark.message,
            last_transition_time: now.clone(),
            observed_generation: None,
        });
        return;
    };
    if condition.status != mark.status {
        mark.status.clone_into(&mut condition.status);
        condition.last_transition_time = now.clone();
    }
    condition.reason = mark.reason;
    condition.message = mark.message;
}

/// That a step has not come yet.
pub(crate) fn not_yet(kind: NodeCondition) -> Mark {
    let message = format!("This node has not yet entered the {} phase", kind.as_str());
    Mark { kind, status: FALSE, reason: "NotYetOccurred".to_owned(), message }
}

pub(crate) const TRUE: &str = "True";
pub(crate) const FALSE: &str = "False";
const UNKNOWN: &str = "Unknown";

fn marks(node: &str, event: &Event) -> Vec<Mark> {
    use NodeCondition::{
        AppliedFilesAndOS, NodeDegraded, RebootedNode, Resumed, UpdateExecuted,
        UpdatePostActionComplete, UpdatePrepared, Updated,
    };
    let alone = |kind: NodeCondition, status, message: String| {
        vec![Mark { reason: kind.as_str().to_owned(), kind, status, message }]
    };
    match event {
        Event::UpToDate => alone(Updated, TRUE, format!("Node {node} Updated")),
        Event::NeedsUpdate => alone(Updated, FALSE, format!("Node {node} needs an update")),
        Event::Prepared(drains) => {
            let drains = *drains == Drains::Yes;
            let text = format!("Update Compatible. Post Cfg Actions: [] Drain Required: {drains}");
            alone(UpdatePrepared, TRUE, text)
        }
        Event::NotPrepared { from, to, why } => {
            let text = format!(
                "Update Failed compatibility validation. \
                 MachineConfigs {from} and {to} are not compatible. Err: {why}"
            );
            alone(UpdatePrepared, UNKNOWN, text)
        }
        Event::NoPostAction => vec![Mark {
            kind: UpdatePostActionComplete,
            status: TRUE,
            reason: "None".to_owned(),
            message: "Changes do not require a reboot".to_owned(),
        }],
        Event::ServiceReloaded(service) => {
            let text = format!("Node has reloaded service {service}");
            alone(UpdatePostActionComplete, TRUE, text)
        }
        Event::ServiceRestarted(service) => {
            let text = format!("Node has restarted service {service}");
            alone(UpdatePostActionComplete, TRUE, text)
        }
        Event::Rebooting => alone(RebootedNode, UNKNOWN, "Upgrade requires a reboot.".to_owned()),
        Event::Rebooted => alone(RebootedNode, TRUE, "Node has rebooted".to_owned()),
        Event::Resumed(config) => {
            let text = format!("In desired config {config}. Resumed normal operations.");
            alone(Resumed, TRUE, text)
        }
        Event::Degraded(why) => {
            alone(NodeDegraded, TRUE, format!("Node {node} upgrade failure. {why}"))
        }
        Event::Recovered => alone(NodeDegraded, FALSE, format!("Node {node} upgrade succeeded")),
        Event::Pins(event) => pins(node, *event),
        Event::Drain(event) => drain(event).into(),
        Event::Applying(parts) => {
            let whole = "Updating the Files and OS on disk as a part of the in progress phase";
            let text = format!("Applying files and new OS config to node. {}", parts.said("will"));
            pair((UpdateExecuted, UNKNOWN, whole), (AppliedFilesAndOS, UNKNOWN, text)).into()
        }
        Event::Applied(parts) => {
            let whole = "Updated the Files and OS on disk as a part of the in progress phase";
            let text = format!("Applied files and new OS config to node. {}", parts.said("did"));
            pair((UpdateExecuted, TRUE, whole), (AppliedFilesAndOS, TRUE, text)).into()
        }
    }
}

fn pins(node: &str, event: PinEvent) -> Vec<Mark> {
    use NodeCondition::{PinnedImageSetsDegraded, PinnedImageSetsProgressing};
    let mark = |kind, status, reason: &str, message: &str| Mark {
        kind,
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match event {
        PinEvent::Pulling => {
            let text = format!("node is prefetching images: {node}");
            vec![mark(PinnedImageSetsProgressing, TRUE, "ImagePrefetch", &text)]
        }
        PinEvent::Complete => vec![
            mark(PinnedImageSetsProgressing, FALSE, "AsExpected", "All pinned image sets complete"),
            mark(PinnedImageSetsDegraded, FALSE, "AsExpected", "All is good"),
        ],
        PinEvent::Failed => {
            let text = "One or more PinnedImageSet is experiencing an error. See PinnedImageSet \
                        list for more details.";
            vec![mark(PinnedImageSetsDegraded, TRUE, "PrefetchFailed", text)]
        }
    }
}

fn drain(event: &DrainEvent) -> [Mark; 2] {
    use NodeCondition::{Cordoned, Drained, Uncordoned, UpdateComplete, UpdateExecuted};
    match event {
        DrainEvent::NotNeeded => {
            let text = "Node Drain Not required for this update.";
            pair((UpdateExecuted, UNKNOWN, text), (Drained, FALSE, text.to_owned()))
        }
        DrainEvent::Cordoned => {
            let whole = "Cordoned Node as part of update executed phase";
            let text = "Cordoned node. The node is reporting Unschedulable = true".to_owned();
            pair((UpdateExecuted, UNKNOWN, whole), (Cordoned, TRUE, text))
        }
        DrainEvent::CordonFailed(why) => {
            let whole = "Failed to Cordon Node as part of In progress update phase";
            let text = format!(
                "Error: Failed to Cordon node. Error is {why}, \
                 The node is reporting Unschedulable = false"
            );
            pair((UpdateExecuted, UNKNOWN, whole), (Cordoned, UNKNOWN, text))
        }
        DrainEvent::Draining(texts) => {
            let whole = "Draining Node as part of update executed phase";
            let text = format!("Draining node. {}", until(texts));
            pair((UpdateExecuted, UNKNOWN, whole), (Drained, UNKNOWN, text))
        }
        DrainEvent::Failed(texts, why) => {
            let whole = "Node Drain has not succeeded";
            let text =
                format!("Error: Node Drain has not succeeded. Error is: {why} {}", until(texts));
            pair((UpdateExecuted, UNKNOWN, whole), (Drained, UNKNOWN, text))
        }
        DrainEvent::Drained(texts) => {
            let whole = "Drained Node as part of update executed phase";
            let text = format!(
                "Drained node. The drain is complete as the desired drainer matches current \
                 drainer: {}",
                texts.desired
            );
            pair((UpdateExecuted, UNKNOWN, whole), (Drained, TRUE, text))
        }
        DrainEvent::Uncordoned => {
            let whole = "Uncordoned Node as part of completing upgrade phase";
            let text = "UnCordoned node. The node is reporting Unschedulable = false".to_owned();
            pair((UpdateComplete, TRUE, whole), (Uncordoned, TRUE, text))
        }
        DrainEvent::UncordonFailed(why) => {
            let whole = "Failed to Uncordon Node as part of completing upgrade phase";
            let text = format!(
                "Error: Failed to UnCordon node. Error is: {why} \
                 The node is reporting Unschedulable = true"
            );
            pair((UpdateComplete, UNKNOWN, whole), (Uncordoned, UNKNOWN, text))
        }
    }
}

/// A condition, and the one that it is a part of.
fn pair(
    whole: (NodeCondition, &'static str, &str),
    part: (NodeCondition, &'static str, String),
) -> [Mark; 2] {
    let reason = format!("{}{}", whole.0.as_str(), part.0.as_str());
    let of = part.0.as_str().to_owned();
    [
        Mark { kind: whole.0, status: whole.1, reason: of, message: whole.2.to_owned() },
        Mark { kind: part.0, status: part.1, reason, message: part.2 },
    ]
}

fn until(texts: &DrainTexts) -> String {
    format!(
        "The drain will not be complete until desired drainer {} matches current drainer {}",
        texts.desired, texts.last
    )
}

impl Parts {
    fn said(self, verb: &str) -> String {
        let need = |needed: bool| if needed { "" } else { "not " };
        format!(
            "OS {verb} {}need an update. SSH Keys {verb} {}need an update",
            need(self.system),
            need(self.keys)
        )
    }
}

#[cfg(test)]
mod tests;
