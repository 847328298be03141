//! The timeline and outcome of a simulation.

use std::fmt;

use mco_core::rollout::Hold;

use crate::Millis;

/// An entry of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time of the event.
    pub at: Millis,
    /// Object of the event: a node, a pool, or the controller.
    pub object: String,
    /// Description of the event.
    pub what: String,
}

/// An invariant that must hold at every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// The controller makes no more nodes of a pool unavailable than `maxUnavailable` allows.
    MaxUnavailable,
    /// No node reboots before its drain, if a drain is needed.
    DrainBeforeReboot,
    /// No node reports success while the controller has it cordoned.
    NoCordonLeft,
    /// At the end, no node that is done keeps a cordon of the controller.
    CordonReturned,
    /// The controller removes no cordon that the user set.
    UserCordonKept,
    /// No node starts in a paused pool.
    PausedMeansPaused,
    /// No node starts that the user cordoned.
    UserCordon,
    /// Once no more faults occur, every node reaches its target.
    Converges,
    /// After a revert, every node that the change broke is repaired.
    RevertRepairs,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxUnavailable => {
                "the controller made more nodes unavailable than maxUnavailable"
            }
            Self::DrainBeforeReboot => "a node rebooted before it was drained",
            Self::NoCordonLeft => "a node is done and still cordoned by the controller",
            Self::CordonReturned => "a node that is done kept the controller's cordon",
            Self::UserCordonKept => "the controller removed a cordon of the user",
            Self::PausedMeansPaused => "a node was targeted in a paused pool",
            Self::UserCordon => "a node was targeted that the user had cordoned",
            Self::Converges => "a node did not reach its target although no more faults occurred",
            Self::RevertRepairs => "a node that the change broke was not repaired by the revert",
        })
    }
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantViolation {
    /// Time of the violation.
    pub at: Millis,
    /// The invariant.
    pub rule: Invariant,
    /// Object that violates the invariant.
    pub who: String,
}

/// The outcome of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOutcome {
    /// Name of the pool.
    pub name: String,
    /// Config at the end.
    pub target: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of nodes that run the config, ready and schedulable.
    pub updated: usize,
    /// Largest number of nodes that the controller made unavailable at a time.
    pub max_seen_unavailable: usize,
    /// Value of `maxUnavailable` as a number of nodes.
    pub max_unavailable: i64,
    /// Nodes that did not reach the target, each with the reason.
    pub left: Vec<(String, String)>,
}

/// The outcome of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Timeline of events.
    pub timeline: Vec<Entry>,
    /// First violated invariant; the simulation ends there.
    pub violation: Option<InvariantViolation>,
    /// Time when the last node reached its target, or the simulation ended.
    pub ended: Millis,
    /// Number of reboots.
    pub reboots: usize,
    /// Number of simulated events.
    pub steps: usize,
    /// Outcome of each pool.
    pub pools: Vec<PoolOutcome>,
}

impl Report {
    /// Returns true if every node reached its target.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.violation.is_none() && self.pools.iter().all(|pool| pool.left.is_empty())
    }
}

/// Formats a reason to wait for a list.
pub(crate) fn waits(hold: &Hold) -> String {
    format!("waits: {hold}")
}

/// Formats a time since the start as hours, minutes and seconds.
#[must_use]
pub fn clock(at: Millis) -> String {
    let seconds = at / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
