//! Conditions of a MachineConfigNode that follow the steps of an update.
//!
//! The daemon reports events, and [`apply_event`] computes the conditions; the controller records the
//! events of a drain in the same list with `record_event`. Types, reasons and messages are the
//! reference's. Its quirks are left out: the transition time changes only with the status, and an
//! update that changes nothing is not written.

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

/// An event in the update of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateEvent {
    /// The node runs its desired config.
    UpToDate,
    /// The node has another desired config.
    NeedsUpdate,
    /// The change was checked and can be applied.
    Prepared(DrainRequired),
    /// The change cannot be applied.
    NotPrepared {
        /// Name of the current config.
        from: String,
        /// Name of the desired config.
        to: String,
        /// Reason of the refusal.
        why: String,
    },
    /// A step of the drain.
    Drain(DrainEvent),
    /// Files and operating system are being changed.
    Applying(ChangedParts),
    /// Files and operating system are changed.
    Applied(ChangedParts),
    /// No service needs a restart.
    NoPostAction,
    /// A service was reloaded.
    ServiceReloaded(String),
    /// A service was restarted.
    ServiceRestarted(String),
    /// The node is about to reboot.
    Rebooting,
    /// The node has rebooted.
    Rebooted,
    /// The node has resumed normal operation with this config.
    Resumed(String),
    /// The update failed with this error.
    Degraded(String),
    /// The failure has cleared.
    Recovered,
    /// A step of pulling pinned images.
    Pins(PinnedImagesEvent),
}

/// A step of pulling pinned images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinnedImagesEvent {
    /// Images are being pulled.
    Pulling,
    /// All images are pulled.
    Complete,
    /// Some images could not be pulled.
    Failed,
}

/// A step of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainEvent {
    /// The update needs no drain.
    NotNeeded,
    /// The node is cordoned.
    Cordoned,
    /// The cordon failed with this error.
    CordonFailed(String),
    /// The node is being drained.
    Draining(DrainAnnotations),
    /// The drain has not succeeded, for this reason.
    Failed(DrainAnnotations, String),
    /// The node is drained.
    Drained(DrainAnnotations),
    /// The node is uncordoned.
    Uncordoned,
    /// The uncordon failed with this error.
    UncordonFailed(String),
}

/// The need of an update for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainRequired {
    /// The update needs a drain.
    Yes,
    /// The update needs no drain.
    No,
}

/// Values of the two drain annotations of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainAnnotations {
    /// Requested drain.
    pub desired: String,
    /// Last applied drain.
    pub last: String,
}

/// Parts of a node that change besides files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedParts {
    /// True if the operating system changes.
    pub system: bool,
    /// True if the SSH keys change.
    pub keys: bool,
}

/// A new value of a condition.
pub(crate) struct ConditionUpdate {
    pub(crate) kind: NodeCondition,
    pub(crate) status: &'static str,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Returns the conditions of `node` after an event; `None` if nothing changes.
///
/// `desired` is the desired config of the node.
#[must_use]
pub fn apply_event(
    before: &[Condition],
    node: &str,
    desired: &str,
    event: &UpdateEvent,
    now: &Time,
) -> Option<Vec<Condition>> {
    let mut after = complete(before, now);
    if matches!(event, UpdateEvent::UpToDate | UpdateEvent::NeedsUpdate) {
        reset(&mut after, desired, now);
    }
    record_event(&mut after, node, event, now);
    (after != before).then_some(after)
}

/// Records an event in the conditions and changes nothing else.
pub(crate) fn record_event(
    conditions: &mut Vec<Condition>,
    node: &str,
    event: &UpdateEvent,
    now: &Time,
) {
    // The controller may report a drain late. It sets UpdateExecuted only until files change.
    let is_applied = status(conditions, &NodeCondition::AppliedFilesAndOS) != FALSE;
    let is_late = |update: &ConditionUpdate| {
        matches!(event, UpdateEvent::Drain(_))
            && is_applied
            && update.kind == NodeCondition::UpdateExecuted
    };
    for update in updates(node, event) {
        if !is_late(&update) {
            set(conditions, update, now);
        }
    }
}

/// Returns the drain events that are missing from the conditions after a completed drain, in order.
#[must_use]
pub fn missing_drain_events(conditions: &[Condition], texts: &DrainAnnotations) -> Vec<DrainEvent> {
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

/// Returns the status of a condition; a missing one is False.
#[must_use]
pub fn status(conditions: &[Condition], kind: &NodeCondition) -> &'static str {
    let found = conditions.iter().find(|condition| condition.type_ == kind.as_str());
    match found.map(|condition| condition.status.as_str()) {
        Some(TRUE) => TRUE,
        Some(UNKNOWN) => UNKNOWN,
        Some(_) | None => FALSE,
    }
}

/// Adds the missing conditions.
fn complete(before: &[Condition], now: &Time) -> Vec<Condition> {
    let mut all = before.to_vec();
    for kind in ALL {
        if !all.iter().any(|condition| condition.type_ == kind.as_str()) {
            set(&mut all, not_yet(kind), now);
        }
    }
    all
}

/// Resets the conditions of the previous update to False and names that update in their messages.
fn reset(conditions: &mut [Condition], desired: &str, now: &Time) {
    // Waiting belongs to the controller, and pulling images is no step of an update.
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

/// Sets one condition; the transition time changes only with the status.
pub(crate) fn set(conditions: &mut Vec<Condition>, update: ConditionUpdate, now: &Time) {
    let place = conditions.iter().position(|found| found.type_ == update.kind.as_str());
    let Some(condition) = place.and_then(|place| conditions.get_mut(place)) else {
        conditions.push(Condition {
            type_: update.kind.as_str().to_owned(),
            status: update.status.to_owned(),
            reason: update.reason,
            message: update.message,
            last_transition_time: now.clone(),
            observed_generation: None,
        });
        return;
    };
    if condition.status != update.status {
        update.status.clone_into(&mut condition.status);
        condition.last_transition_time = now.clone();
    }
    condition.reason = update.reason;
    condition.message = update.message;
}

/// Returns the value of a step that has not happened yet.
pub(crate) fn not_yet(kind: NodeCondition) -> ConditionUpdate {
    let message = format!("This node has not yet entered the {} phase", kind.as_str());
    ConditionUpdate { kind, status: FALSE, reason: "NotYetOccurred".to_owned(), message }
}

pub(crate) const TRUE: &str = "True";
pub(crate) const FALSE: &str = "False";
const UNKNOWN: &str = "Unknown";

fn updates(node: &str, event: &UpdateEvent) -> Vec<ConditionUpdate> {
    use NodeCondition::{
        AppliedFilesAndOS, NodeDegraded, RebootedNode, Resumed, UpdateExecuted,
        UpdatePostActionComplete, UpdatePrepared, Updated,
    };
    let alone = |kind: NodeCondition, status, message: String| {
        vec![ConditionUpdate { reason: kind.as_str().to_owned(), kind, status, message }]
    };
    match event {
        UpdateEvent::UpToDate => alone(Updated, TRUE, format!("Node {node} Updated")),
        UpdateEvent::NeedsUpdate => alone(Updated, FALSE, format!("Node {node} needs an update")),
        UpdateEvent::Prepared(drains) => {
            let drains = *drains == DrainRequired::Yes;
            let text = format!("Update Compatible. Post Cfg Actions: [] Drain Required: {drains}");
            alone(UpdatePrepared, TRUE, text)
        }
        UpdateEvent::NotPrepared { from, to, why } => {
            let text = format!(
                "Update Failed compatibility validation. \
                 MachineConfigs {from} and {to} are not compatible. Err: {why}"
            );
            alone(UpdatePrepared, UNKNOWN, text)
        }
        UpdateEvent::NoPostAction => vec![ConditionUpdate {
            kind: UpdatePostActionComplete,
            status: TRUE,
            reason: "None".to_owned(),
            message: "Changes do not require a reboot".to_owned(),
        }],
        UpdateEvent::ServiceReloaded(service) => {
            let text = format!("Node has reloaded service {service}");
            alone(UpdatePostActionComplete, TRUE, text)
        }
        UpdateEvent::ServiceRestarted(service) => {
            let text = format!("Node has restarted service {service}");
            alone(UpdatePostActionComplete, TRUE, text)
        }
        UpdateEvent::Rebooting => {
            alone(RebootedNode, UNKNOWN, "Upgrade requires a reboot.".to_owned())
        }
        UpdateEvent::Rebooted => alone(RebootedNode, TRUE, "Node has rebooted".to_owned()),
        UpdateEvent::Resumed(config) => {
            let text = format!("In desired config {config}. Resumed normal operations.");
            alone(Resumed, TRUE, text)
        }
        UpdateEvent::Degraded(why) => {
            alone(NodeDegraded, TRUE, format!("Node {node} upgrade failure. {why}"))
        }
        UpdateEvent::Recovered => {
            alone(NodeDegraded, FALSE, format!("Node {node} upgrade succeeded"))
        }
        UpdateEvent::Pins(event) => pins(node, *event),
        UpdateEvent::Drain(event) => drain(event).into(),
        UpdateEvent::Applying(parts) => {
            let whole = "Updating the Files and OS on disk as a part of the in progress phase";
            let text = format!("Applying files and new OS config to node. {}", parts.text("will"));
            pair((UpdateExecuted, UNKNOWN, whole), (AppliedFilesAndOS, UNKNOWN, text)).into()
        }
        UpdateEvent::Applied(parts) => {
            let whole = "Updated the Files and OS on disk as a part of the in progress phase";
            let text = format!("Applied files and new OS config to node. {}", parts.text("did"));
            pair((UpdateExecuted, TRUE, whole), (AppliedFilesAndOS, TRUE, text)).into()
        }
    }
}

fn pins(node: &str, event: PinnedImagesEvent) -> Vec<ConditionUpdate> {
    use NodeCondition::{PinnedImageSetsDegraded, PinnedImageSetsProgressing};
    let update = |kind, status, reason: &str, message: &str| ConditionUpdate {
        kind,
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    match event {
        PinnedImagesEvent::Pulling => {
            let text = format!("node is prefetching images: {node}");
            vec![update(PinnedImageSetsProgressing, TRUE, "ImagePrefetch", &text)]
        }
        PinnedImagesEvent::Complete => vec![
            update(
                PinnedImageSetsProgressing,
                FALSE,
                "AsExpected",
                "All pinned image sets complete",
            ),
            update(PinnedImageSetsDegraded, FALSE, "AsExpected", "All is good"),
        ],
        PinnedImagesEvent::Failed => {
            let text = "One or more PinnedImageSet is experiencing an error. See PinnedImageSet \
                        list for more details.";
            vec![update(PinnedImageSetsDegraded, TRUE, "PrefetchFailed", text)]
        }
    }
}

fn drain(event: &DrainEvent) -> [ConditionUpdate; 2] {
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

/// Returns a condition and the condition that it is a part of.
fn pair(
    whole: (NodeCondition, &'static str, &str),
    part: (NodeCondition, &'static str, String),
) -> [ConditionUpdate; 2] {
    let reason = format!("{}{}", whole.0.as_str(), part.0.as_str());
    let of = part.0.as_str().to_owned();
    [
        ConditionUpdate { kind: whole.0, status: whole.1, reason: of, message: whole.2.to_owned() },
        ConditionUpdate { kind: part.0, status: part.1, reason, message: part.2 },
    ]
}

fn until(texts: &DrainAnnotations) -> String {
    format!(
        "The drain will not be complete until desired drainer {} matches current drainer {}",
        texts.desired, texts.last
    )
}

impl ChangedParts {
    fn text(self, verb: &str) -> String {
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
