//! What a roll-out does next, and why the others wait.

use std::{collections::BTreeMap, fmt};

use super::{BadLimit, Phase, PoolView};

/// Why a node that needs the target does not get it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The pool is paused.
    Paused,
    /// The pool is being deleted.
    Deleting,
    /// As many nodes as may be are out of service already.
    NoCapacity,
    /// Nobody can say how many nodes may be out of service at a time.
    BadLimit(BadLimit),
    /// Its pool's nodes run images that somebody builds in the cluster.
    ImageMode,
    /// The node is not ready and nothing is known of it; says in which way.
    NotReady(String),
    /// Somebody cordoned the node.
    Cordoned,
    /// The operator runs on it, and others can go first.
    OperatorNode,
    /// The other half of the control plane is out of service or goes first.
    Neighbour,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("the pool is paused"),
            Self::Deleting => f.write_str("the pool is being deleted"),
            Self::NoCapacity => f.write_str("no more nodes may be out of service at a time"),
            Self::BadLimit(fault) => write!(f, "the pool's {fault}"),
            Self::ImageMode => f.write_str(
                "its pool has a MachineOSConfig, whose images this controller does not build",
            ),
            Self::NotReady(why) => f.write_str(why),
            Self::Cordoned => f.write_str("somebody cordoned it; kubectl uncordon lets it go on"),
            Self::OperatorNode => f.write_str("the operator runs here, so other nodes go first"),
            Self::Neighbour => f.write_str("masters and arbiter are never updated together"),
        }
    }
}

/// Which nodes start now, and why the others wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPlan {
    /// The config to start with.
    pub target: String,
    /// How many nodes in service may start.
    pub capacity: usize,
    /// The nodes that start, in this order.
    pub starts: Vec<String>,
    /// Those of them that need no slot, because they are out of service or on their way already.
    pub repairs: Vec<String>,
    /// Nodes that get the labels of the custom pool they were booted for instead.
    pub labels: Vec<(String, BTreeMap<String, String>)>,
    /// The node that was passed over because the operator runs on it.
    pub deferred: Option<String>,
    /// The nodes that wait, each with its reason.
    pub holds: Vec<(String, Hold)>,
}

impl RolloutPlan {
    pub(super) fn toward(target: &str, capacity: usize) -> Self {
        Self {
            target: target.to_owned(),
            capacity,
            starts: Vec::new(),
            repairs: Vec::new(),
            labels: Vec::new(),
            deferred: None,
            holds: Vec::new(),
        }
    }

    /// What is said of the starts; nothing if there are none.
    #[must_use]
    pub fn started(&self) -> Option<String> {
        let target = &self.target;
        match self.starts.as_slice() {
            [] => None,
            [node] => Some(format!("Targeted node {node} to MachineConfig: {target}")),
            nodes => {
                Some(format!("Set target for {} nodes to MachineConfig: {target}", nodes.len()))
            }
        }
    }

    /// What is said of the node that was passed over; nothing if there is none.
    #[must_use]
    pub fn passed_over(&self) -> Option<String> {
        let node = self.deferred.as_ref()?;
        Some(format!("Deferring update of machine config operator node {node}"))
    }
}

/// What a choice of nodes means for all that wait, besides how each of them stands.
///
/// With it a single node's reason to wait can be told without looking at the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The config that they wait for.
    pub target: String,
    /// Whether the pool may do anything.
    pub phase: Phase,
    /// Why no node of the pool can be told anything.
    pub refusal: Option<Hold>,
    /// Whether the other half of the control plane goes first.
    pub neighbour: bool,
    /// The node that was passed over because the operator runs on it.
    pub deferred: Option<String>,
}

impl Verdict {
    /// What this choice means.
    #[must_use]
    pub fn of(pool: &PoolView, plan: &RolloutPlan) -> Self {
        Self {
            target: plan.target.clone(),
            phase: pool.phase,
            refusal: None,
            neighbour: pool.neighbour.unavailable > 0,
            deferred: plan.deferred.clone(),
        }
    }

    /// No choice can be made, for this reason.
    #[must_use]
    pub fn refused(target: &str, phase: Phase, refusal: Hold) -> Self {
        let target = target.to_owned();
        Self { target, phase, refusal: Some(refusal), neighbour: false, deferred: None }
    }
}

impl fmt::Display for RolloutPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "to {}: {} may start", self.target, self.capacity)?;
        for node in &self.starts {
            let how = if self.repairs.contains(node) { "is repaired" } else { "starts" };
            write!(f, "\n  {node}  {how}")?;
        }
        for (node, _) in &self.labels {
            write!(f, "\n  {node}  gets the labels of its pool")?;
        }
        for (node, hold) in &self.holds {
            write!(f, "\n  {node}  waits: {hold}")?;
        }
        Ok(())
    }
}
