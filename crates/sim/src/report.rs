//! What happened in a simulation, and what came of it.

use std::fmt;

use mco_core::rollout::Hold;

use crate::Millis;

/// What happened, when, and to which node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Millis,
    /// To whom: a node, a pool, or the controller.
    pub who: String,
    /// What.
    pub what: String,
}

/// A rule that must hold at every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// By our doing, no more nodes of a pool are out of service than `maxUnavailable` says.
    MaxUnavailable,
    /// No node reboots before its pods have left, where they had to.
    DrainBeforeReboot,
    /// No node reports success while we have it cordoned.
    NoCordonLeft,
    /// Nothing starts in a paused pool.
    PausedMeansPaused,
    /// Nothing starts on a node that somebody else cordoned.
    TheirCordon,
    /// Once nothing goes wrong any more, every node gets there.
    Converges,
    /// After a revert, every node that the change broke is repaired.
    RevertRepairs,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxUnavailable => "more nodes out of service by our doing than allowed",
            Self::DrainBeforeReboot => "a node rebooted before its pods had left",
            Self::NoCordonLeft => "a node is done and still cordoned by us",
            Self::PausedMeansPaused => "a node was told in a paused pool",
            Self::TheirCordon => "a node was told that somebody else had cordoned",
            Self::Converges => "a node did not get there although nothing went wrong any more",
            Self::RevertRepairs => "a node that the change broke was not repaired by the revert",
        })
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Millis,
    /// Which.
    pub rule: Rule,
    /// By whom.
    pub who: String,
}

/// What came of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOutcome {
    /// Its name.
    pub name: String,
    /// Its config at the end.
    pub target: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many of them run the config, ready and open to pods.
    pub updated: usize,
    /// The most nodes out of service by our doing at a time.
    pub most_out: usize,
    /// How many may be.
    pub max_unavailable: i64,
    /// Nodes that did not get there, each with the reason.
    pub left: Vec<(String, String)>,
}

/// What came of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What happened.
    pub timeline: Vec<Entry>,
    /// The first rule that was broken; the simulation ends there.
    pub violation: Option<Violation>,
    /// When the last node got there, or the simulation ended.
    pub ended: Millis,
    /// How many reboots there were.
    pub reboots: usize,
    /// How many steps it took.
    pub steps: usize,
    /// What came of each pool.
    pub pools: Vec<PoolOutcome>,
}

impl Report {
    /// Whether every node got there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.violation.is_none() && self.pools.iter().all(|pool| pool.left.is_empty())
    }
}

/// A reason to wait, worded for a list.
pub(crate) fn waits(hold: &Hold) -> String {
    format!("waits: {hold}")
}

/// A time since the start, as hours, minutes and seconds.
#[must_use]
pub fn clock(at: Millis) -> String {
    let seconds = at / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
