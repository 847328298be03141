//! What the controller says of a node in its MachineConfigNode: whose it is, what it is to run, why it
//! waits and how its drain goes. The daemon says the rest.
//!
//! All of it follows from the node itself, so that a controller that has just started says the same
//! as one that has seen everything.

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
    status::machine_config_node::{
        self as report, DrainEvent, DrainTexts, Event, FALSE, Mark, TRUE, not_yet, set, status,
    },
};

/// Stands for a name that nobody knows yet.
pub const NOT_YET_SET: &str = "not-yet-set";

/// What a node waits for, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The config that it needs.
    pub target: String,
    /// Why it does not get it yet.
    pub hold: Hold,
}

/// The MachineConfigNode of a node that has none; it goes away with the node.
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

/// Whether the MachineConfigNode is that of an earlier node of the same name.
#[must_use]
pub fn is_of_another(object: &MachineConfigNode, node: &Node) -> bool {
    let mut owners = object.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == "Node");
    owner.is_some_and(|owner| Some(&owner.uid) != node.metadata.uid.as_ref())
}

/// The node, its pool and the config it is to run.
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

/// The conditions, with ours as they are now and all others as they were.
#[must_use]
pub fn conditions(
    before: &[Condition],
    node: &Node,
    wait: Option<&Wait>,
    now: &Time,
) -> Vec<Condition> {
    let mut after = before.to_vec();
    waits(&mut after, wait, now);
    let name = node.metadata.name.as_deref().unwrap_or_default();
    for event in drain(&after, node) {
        report::put(&mut after, name, &Event::Drain(event), now);
    }
    if matches!(stage(node), Stage::Draining) {
        // What the last update left behind must not be taken for the end of this one.
        for kind in [NodeCondition::Uncordoned, NodeCondition::UpdateComplete] {
            if status(&after, &kind) == TRUE {
                set(&mut after, not_yet(kind), now);
            }
        }
    }
    after
}

fn waits(conditions: &mut Vec<Condition>, wait: Option<&Wait>, now: &Time) {
    let kind = NodeCondition::Waiting;
    let (status, reason, message) = match wait {
        Some(wait) => {
            (TRUE, word(&wait.hold), format!("Node waits for {}: {}", wait.target, wait.hold))
        }
        None if status(conditions, &kind) != FALSE => {
            (FALSE, "AsExpected", "Nothing keeps the node from its config.".to_owned())
        }
        None => return,
    };
    set(conditions, Mark { kind, status, reason: reason.to_owned(), message }, now);
}

/// What there is to say about the drain of a node.
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
        // Said once: when the daemon is through, it takes all of it back.
        Stage::Uncordoned => {
            let was_drained = [NodeCondition::Cordoned, NodeCondition::Drained]
                .iter()
                .any(|kind| is(kind) != FALSE);
            let is_news = was_drained && is(&NodeCondition::Uncordoned) != TRUE;
            is_news.then_some(DrainEvent::Uncordoned).into_iter().collect()
        }
    }
}

/// How far a node is with what its daemon asked for.
enum Stage {
    /// Nothing to say.
    Other,
    /// It is closed to pods, and pods are still there.
    Draining,
    /// The drain is over.
    Drained,
    /// It is open to pods again.
    Uncordoned,
}

fn stage(node: &Node) -> Stage {
    let asked = value(node, annotation::DESIRED_DRAIN.name());
    let is_done = asked == value(node, annotation::LAST_APPLIED_DRAIN.name());
    let is_closed = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    match asked.split('-').next() {
        Some("drain") if is_done => Stage::Drained,
        Some("drain") if is_closed => Stage::Draining,
        Some("uncordon") if is_done => Stage::Uncordoned,
        _ => Stage::Other,
    }
}

fn value<'a>(node: &'a Node, key: &str) -> &'a str {
    let annotations = node.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(key)).map(String::as_str).unwrap_or_default()
}

/// One word for programs.
fn word(hold: &Hold) -> &'static str {
    match hold {
        Hold::Paused => "PoolPaused",
        Hold::Deleting => "PoolDeleting",
        Hold::NoCapacity => "NoCapacity",
        Hold::BadLimit(_) => "BadLimit",
        Hold::ImageMode => "ImageMode",
        Hold::NotReady(_) => "NotReady",
        Hold::Cordoned => "Cordoned",
        Hold::OperatorNode => "OperatorNode",
        Hold::Neighbour => "ControlPlane",
    }
}

fn texts(node: &Node) -> DrainTexts {
    DrainTexts {
        desired: value(node, annotation::DESIRED_DRAIN.name()).to_owned(),
        last: value(node, annotation::LAST_APPLIED_DRAIN.name()).to_owned(),
    }
}

/// How the drain goes, and what holds it up.
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
