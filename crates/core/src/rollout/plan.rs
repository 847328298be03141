//! What a roll-out does next, and why the others wait.

use std::fmt;

use super::NodeView;

/// Why a node that needs the target does not get it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The pool is paused.
    Paused,
    /// The pool is being deleted.
    Deleting,
    /// As many nodes as may be are out of service already.
    NoCapacity,
    /// The node is not ready; says in which way.
    NotReady(String),
    /// The operator runs on it, and others can go first.
    OperatorNode,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("the pool is paused"),
            Self::Deleting => f.write_str("the pool is being deleted"),
            Self::NoCapacity => f.write_str("no more nodes may be out of service at a time"),
            Self::NotReady(why) => f.write_str(why),
            Self::OperatorNode => f.write_str("the operator runs here, so other nodes go first"),
        }
    }
}

/// Which nodes start now, and why the others wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutPlan {
    /// The config to start with.
    pub target: String,
    /// How many nodes may start.
    pub capacity: usize,
    /// The nodes that start, in this order.
    pub starts: Vec<String>,
    /// The nodes that wait, each with its reason.
    pub holds: Vec<(String, Hold)>,
}

impl RolloutPlan {
    pub(super) fn toward(target: &str, capacity: usize) -> Self {
        Self { target: target.to_owned(), capacity, starts: Vec::new(), holds: Vec::new() }
    }

    pub(super) fn start(&mut self, node: &NodeView) {
        self.starts.push(node.name.clone());
    }

    pub(super) fn hold(&mut self, node: &NodeView, why: Hold) {
        self.holds.push((node.name.clone(), why));
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

    /// The node that was passed over because the operator runs on it.
    #[must_use]
    pub fn deferred(&self) -> Option<&str> {
        let deferred = self.holds.iter().find(|(_, hold)| *hold == Hold::OperatorNode);
        deferred.map(|(node, _)| node.as_str())
    }
}

impl fmt::Display for RolloutPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "to {}: {} may start", self.target, self.capacity)?;
        for node in &self.starts {
            write!(f, "\n  {node}  starts")?;
        }
        for (node, hold) in &self.holds {
            write!(f, "\n  {node}  waits: {hold}")?;
        }
        Ok(())
    }
}
