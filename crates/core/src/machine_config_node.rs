//! The controller's part of a MachineConfigNode: pool, desired config, reason to wait and drain
//! conditions. The daemon writes the rest.
//!
//! Everything is derived from the node itself, so that a controller that has just started writes
//! the same as one that has been running.

use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time},
};
use mco_api::{
    MachineConfigNode,
    annotation::{self, DrainRecord},
    condition::NodeCondition,
    machine_config_node::{DesiredConfigVersion, MachineConfigNodeSpec, NameReference},
};

use crate::{
    rollout::Hold,
    status::update_conditions::{
        self as update_conditions, ConditionUpdate, DrainAnnotations, DrainEvent, FALSE, TRUE,
        UpdateEvent, not_yet, set, status,
    },
};

/// Placeholder for a name that is not known yet.
pub const NOT_YET_SET: &str = "not-yet-set";

/// The config that a node waits for, and the reason why it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingUpdate {
    /// Config that the node needs.
    pub target: String,
    /// Reason why the node does not get the config yet.
    pub hold: Hold,
}

/// Builds the MachineConfigNode of a node; it is deleted with the node.
#[must_use]
pub fn object(node: &Node, pool: Option<&str>) -> MachineConfigNode {
    let name = node.metadata.name.clone().unwrap_or_default();
    let mut object = MachineConfigNode::new(&name, spec(node, pool));
    object.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name,
        uid: node.metadata.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }]);
    object
}

/// Returns true if the MachineConfigNode belongs to an earlier node of the same name.
#[must_use]
pub fn belongs_to_other_node(object: &MachineConfigNode, node: &Node) -> bool {
    let mut owners = object.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == "Node");
    owner.is_some_and(|owner| Some(&owner.uid) != node.metadata.uid.as_ref())
}

/// Builds the spec: the node, its pool and its desired config.
#[must_use]
pub fn spec(node: &Node, pool: Option<&str>) -> MachineConfigNodeSpec {
    let or_not_yet = |name: &str| if name.is_empty() { NOT_YET_SET } else { name }.to_owned();
    MachineConfigNodeSpec {
        node: NameReference { name: node.metadata.name.clone().unwrap_or_default() },
        pool: NameReference { name: or_not_yet(pool.unwrap_or_default()) },
        config_version: DesiredConfigVersion {
            desired: or_not_yet(value(node, annotation::DESIRED_CONFIG.name())),
        },
    }
}

/// Updates the controller's conditions and leaves all others unchanged.
#[must_use]
pub fn conditions(
    before: &[Condition],
    node: &Node,
    wait: Option<&PendingUpdate>,
    now: &Time,
) -> Vec<Condition> {
    let mut after = before.to_vec();
    set_waiting(&mut after, wait, now);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    for event in drain(&after, node) {
        update_conditions::record_event(&mut after, name, &UpdateEvent::Drain(event), now);
    }
    if matches!(stage(node), Stage::Draining) {
        // The result of the last update must not be taken for the end of this one.
        for kind in [NodeCondition::Uncordoned, NodeCondition::UpdateComplete] {
            if status(&after, &kind) == TRUE {
                set(&mut after, not_yet(kind), now);
            }
        }
    }
    after
}

fn set_waiting(conditions: &mut Vec<Condition>, wait: Option<&PendingUpdate>, now: &Time) {
    let kind = NodeCondition::Waiting;
    let (status, reason, message) = match wait {
        Some(wait) => {
            (TRUE, reason(&wait.hold), format!("Node waits for {}: {}", wait.target, wait.hold))
        }
        None if status(conditions, &kind) != FALSE => {
            (FALSE, "AsExpected", "The node does not wait for its config.".to_owned())
        }
        None => return,
    };
    set(conditions, ConditionUpdate { kind, status, reason: reason.to_owned(), message }, now);
}

/// Returns the drain events to record for a node.
fn drain(conditions: &[Condition], node: &Node) -> Vec<DrainEvent> {
    let is = |kind: &NodeCondition| status(conditions, kind);
    match stage(node) {
        Stage::Other => Vec::new(),
        Stage::Draining => vec![DrainEvent::Cordoned, draining(node)],
        Stage::Drained => {
            let drained = DrainEvent::Drained(texts(node));
            let missing = [
                (NodeCondition::Cordoned, DrainEvent::Cordoned),
                (NodeCondition::Drained, drained),
            ];
            missing
                .into_iter()
                .filter(|(kind, _)| is(kind) != TRUE)
                .map(|(_, event)| event)
                .collect()
        }
        // Recorded once: the daemon resets these conditions when the update is complete.
        Stage::Uncordoned => {
            let was_drained = [NodeCondition::Cordoned, NodeCondition::Drained]
                .iter()
                .any(|kind| is(kind) != FALSE);
            let is_new = was_drained && is(&NodeCondition::Uncordoned) != TRUE;
            is_new.then_some(DrainEvent::Uncordoned).into_iter().collect()
        }
    }
}

/// The progress of a node's drain request.
enum Stage {
    /// No request is pending, or the node is not cordoned yet.
    Other,
    /// The node is cordoned and not drained yet.
    Draining,
    /// The drain is complete.
    Drained,
    /// The node is uncordoned.
    Uncordoned,
}

fn stage(node: &Node) -> Stage {
    let desired = value(node, annotation::DESIRED_DRAIN.name());
    let is_done = desired == value(node, annotation::LAST_APPLIED_DRAIN.name());
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    match desired.split('-').next() {
        Some("drain") if is_done => Stage::Drained,
        Some("drain") if is_cordoned => Stage::Draining,
        Some("uncordon") if is_done => Stage::Uncordoned,
        _ => Stage::Other,
    }
}

fn value<'a>(node: &'a Node, key: &str) -> &'a str {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
}

/// Returns the reason of the condition `Waiting`.
fn reason(hold: &Hold) -> &'static str {
    match hold {
        Hold::Paused => "PoolPaused",
        Hold::Deleting => "PoolDeleting",
        Hold::NoCapacity => "NoCapacity",
        Hold::BadLimit(_) => "BadLimit",
        Hold::ImageMode => "ImageMode",
        Hold::Undecodable(_) => "Undecodable",
        Hold::NotReady(_) => "NotReady",
        Hold::Cordoned => "Cordoned",
        Hold::OperatorNode => "OperatorNode",
        Hold::ControlPlane => "ControlPlane",
    }
}

fn texts(node: &Node) -> DrainAnnotations {
    DrainAnnotations {
        desired: value(node, annotation::DESIRED_DRAIN.name()).to_owned(),
        last: value(node, annotation::LAST_APPLIED_DRAIN.name()).to_owned(),
    }
}

/// Returns the drain event of a node that is being drained, with the pods that block the drain.
fn draining(node: &Node) -> DrainEvent {
    let texts = texts(node);
    let record = value(node, annotation::DRAIN_RECORD.name()).parse::<DrainRecord>();
    let of_this =
        |record: &DrainRecord| record.request == texts.desired && !record.blockers.is_empty();
    let Some(record) = record.ok().filter(of_this) else { return DrainEvent::Draining(texts) };
    let mut blockers: Vec<String> = record.blockers.iter().map(ToString::to_string).collect();
    if record.more > 0 {
        blockers.push(format!("and {} more pods", record.more));
    }
    let Time(since) = &record.since;
    let why = format!(
        "{}. Draining since {since:.0}, failed attempts: {}.",
        blockers.join("; "),
        record.attempts
    );
    DrainEvent::Failed(texts, why)
}

#[cfg(test)]
mod tests;
