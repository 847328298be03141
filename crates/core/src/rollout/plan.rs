//! A rollout plan: the nodes to update now, and the reasons why the others wait.

use std::{collections::BTreeMap, fmt};

use super::{BadLimit, PoolPhase, PoolView};

/// The reason why a node that needs the target does not get it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The pool is paused.
    Paused,
    /// The pool is being deleted.
    Deleting,
    /// All slots of `maxUnavailable` are occupied.
    NoCapacity,
    /// `maxUnavailable` is invalid.
    BadLimit(BadLimit),
    /// The node runs a built OS image, and no process builds images for its pool.
    ImageMode,
    /// An object that decides about the membership or the mode of nodes cannot be decoded; the text
    /// names it and its fault.
    Undecodable(String),
    /// The node is not ready and has no desired config; the text is the readiness error.
    NotReady(String),
    /// The user cordoned the node.
    Cordoned,
    /// The operator runs on the node, and other nodes can be updated first.
    OperatorNode,
    /// A node of the other control plane pool is unavailable or is updated first.
    ControlPlane,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("the pool is paused"),
            Self::Deleting => f.write_str("the pool is being deleted"),
            Self::NoCapacity => {
                f.write_str("no free slot: maxUnavailable nodes are unavailable or updating")
            }
            Self::BadLimit(fault) => write!(f, "the pool's {fault}"),
            Self::ImageMode => f.write_str(
                "the node runs a built OS image and keeps it: no process builds images for the pool's \
                 MachineOSConfig",
            ),
            Self::NotReady(why) | Self::Undecodable(why) => f.write_str(why),
            Self::Cordoned => f.write_str("cordoned by the user"),
            Self::OperatorNode => f.write_str("the operator runs here, so other nodes go first"),
            Self::ControlPlane => f.write_str("masters and arbiter are never updated together"),
        }
    }
}

/// The nodes to update now, and the reasons why the others wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPlan {
    /// Config to update to.
    pub target: String,
    /// Number of available nodes that may start.
    pub capacity: usize,
    /// Nodes that start, in this order.
    pub starts: Vec<String>,
    /// Subset of `starts` that needs no slot, because these nodes are unavailable or updating
    /// already.
    pub repairs: Vec<String>,
    /// Nodes that get the labels of the custom pool they were booted for instead.
    pub labels: Vec<(String, BTreeMap<String, String>)>,
    /// Node that was deferred because the operator runs on it.
    pub deferred: Option<String>,
    /// Nodes that wait, each with its reason.
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

    /// Returns the event message about the starts; `None` if there are none.
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

    /// Returns the event message about the deferred node; `None` if there is none.
    #[must_use]
    pub fn passed_over(&self) -> Option<String> {
        let node = self.deferred.as_ref()?;
        Some(format!("Deferring update of machine config operator node {node}"))
    }
}

/// The result of a selection that applies to all waiting nodes of a pool.
///
/// With it the reason of a single node can be determined without its neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutDecision {
    /// Config that the nodes wait for.
    pub target: String,
    /// State of the pool.
    pub phase: PoolPhase,
    /// Reason why no node of the pool can be updated.
    pub refusal: Option<Hold>,
    /// True if the other control plane pool is updated first.
    pub neighbour: bool,
    /// Node that was deferred because the operator runs on it.
    pub deferred: Option<String>,
}

impl RolloutDecision {
    /// Derives the decision from a selection.
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

    /// Returns the decision of a pool for which no selection is possible.
    #[must_use]
    pub fn refused(target: &str, phase: PoolPhase, refusal: Hold) -> Self {
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
