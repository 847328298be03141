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

use crate::rollout::Hold;

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
    let mut board = Board { conditions: before.to_vec(), now };
    match wait {
        Some(wait) => {
            let text = format!("Node waits for {}: {}", wait.target, wait.hold);
            board.set(&NodeCondition::Waiting, "True", word(&wait.hold), &text);
        }
        None if board.status(&NodeCondition::Waiting) != "False" => {
            let text = "Nothing keeps the node from its config.";
            board.set(&NodeCondition::Waiting, "False", "AsExpected", text);
        }
        None => {}
    }
    match stage(node) {
        Stage::Other => {}
        Stage::Draining => board.draining(node),
        Stage::Drained => board.drained(node),
        Stage::Uncordoned => board.uncordoned(),
    }
    board.conditions
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

struct Board<'a> {
    conditions: Vec<Condition>,
    now: &'a Time,
}

impl Board<'_> {
    fn draining(&mut self, node: &Node) {
        let text = progress(node);
        self.set(&NodeCondition::UpdateExecuted, "Unknown", "Drained", &text);
        let cordoned = "Cordoned node. The node is reporting Unschedulable = true";
        self.set(&NodeCondition::Cordoned, "True", "UpdateExecutedCordoned", cordoned);
        self.set(&NodeCondition::Drained, "Unknown", "UpdateExecutedDrained", &text);
        // What the last update left behind must not be taken for the end of this one.
        for kind in [NodeCondition::Uncordoned, NodeCondition::UpdateComplete] {
            if self.status(&kind) == "True" {
                let text = format!("This node has not yet entered the {} phase", kind.as_str());
                self.set(&kind, "False", "NotYetOccurred", &text);
            }
        }
    }

    fn drained(&mut self, node: &Node) {
        if self.status(&NodeCondition::Cordoned) != "True" {
            let text = "Cordoned node. The node is reporting Unschedulable = true";
            self.set(&NodeCondition::Cordoned, "True", "UpdateExecutedCordoned", text);
        }
        let asked = value(node, annotation::DESIRED_DRAIN.name());
        let text = format!(
            "Drained node. The drain is complete as the desired drainer matches current drainer: \
             {asked}"
        );
        self.set(&NodeCondition::Drained, "True", "UpdateExecutedDrained", &text);
    }

    /// Says so once: when the daemon is through, it takes all of it back.
    fn uncordoned(&mut self) {
        let drained =
            [NodeCondition::Cordoned, NodeCondition::Drained].map(|kind| self.status(&kind));
        if drained == ["False", "False"] || self.status(&NodeCondition::Uncordoned) == "True" {
            return;
        }
        let text = "UnCordoned node. The node is reporting Unschedulable = false";
        self.set(&NodeCondition::UpdateComplete, "True", "Uncordoned", text);
        self.set(&NodeCondition::Uncordoned, "True", "UpdateCompleteUncordoned", text);
    }

    /// What is known of the condition; what was never said does not hold.
    fn status(&self, kind: &NodeCondition) -> &'static str {
        let found = self.conditions.iter().find(|condition| condition.type_ == kind.as_str());
        match found.map(|condition| condition.status.as_str()) {
            Some("True") => "True",
            Some("Unknown") => "Unknown",
            Some(_) | None => "False",
        }
    }

    /// The time moves only with the status.
    fn set(&mut self, kind: &NodeCondition, status: &str, reason: &str, message: &str) {
        let place = self.conditions.iter().position(|found| found.type_ == kind.as_str());
        let known = place.and_then(|place| self.conditions.get_mut(place));
        let Some(condition) = known else {
            self.conditions.push(Condition {
                type_: kind.as_str().to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message: message.to_owned(),
                last_transition_time: self.now.clone(),
                observed_generation: None,
            });
            return;
        };
        if condition.status != status {
            condition.last_transition_time = self.now.clone();
            status.clone_into(&mut condition.status);
        }
        reason.clone_into(&mut condition.reason);
        message.clone_into(&mut condition.message);
    }
}

/// How the drain goes, and what holds it up.
fn progress(node: &Node) -> String {
    let asked = value(node, annotation::DESIRED_DRAIN.name());
    let applied = value(node, annotation::LAST_APPLIED_DRAIN.name());
    let until = format!(
        "The drain will not be complete until desired drainer {asked} matches current drainer \
         {applied}"
    );
    let record = value(node, annotation::DRAIN_RECORD.name()).parse::<DrainRecord>();
    let record =
        record.ok().filter(|record| record.request == asked && !record.blockers.is_empty());
    let Some(record) = record else { return format!("Draining node. {until}") };
    let mut blockers: Vec<String> = record.blockers.iter().map(ToString::to_string).collect();
    if record.more > 0 {
        blockers.push(format!("and {} more pods", record.more));
    }
    let Time(since) = &record.since;
    format!(
        "Error: Node Drain has not succeeded. Error is: {}. Draining since {since:.0}, failed \
         attempts: {}. {until}",
        blockers.join("; "),
        record.attempts
    )
}

#[cfg(test)]
mod tests;
