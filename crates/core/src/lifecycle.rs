//! One life of a node: a state machine from the state, an observation and the time to the next
//! state and one action.
//!
//! Pure. A daemon, `mco host confirm` and the simulator observe, call [`next`], carry the action
//! out, and observe again with its outcome. Everything that must survive a crash is on the disk or
//! in the node's annotations, and is observed anew at every step: a daemon that starts with an empty
//! [`State`] continues where the one before it ended.

mod action;
#[cfg(test)]
mod diagram;
pub mod heal;
pub mod health;
#[cfg(test)]
mod model;
mod observe;
mod progress;
pub mod standby;
mod state;
mod turn;
mod unfinished;
mod update;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use self::{
    action::{
        Action, Cause, Completion, DriftDetected, Drifted, Occasion, Outcome, Planned, Severity,
        Update, Wake,
    },
    heal::{NotRepaired, RepairDecision, RepairHistory},
    health::{CheckResult, Health, HealthDecision, RolledBackConfig},
    observe::{DiskView, NodeAnnotations, Observation, UnfinishedUpdate},
    progress::{Progress, Resume, Stage, resume},
    state::{Limits, Phase, State},
};

/// Interval of full verifications, which find changes that a watch missed.
pub const VERIFY_INTERVAL: Duration = Duration::from_mins(30);

/// Longest pause between retries; the first is one second, each further one twice as long.
pub const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Pause between two checks of an unhealthy kubelet.
const KUBELET_INTERVAL: Duration = Duration::from_secs(1);

/// Pause between two lookups of a pool with a rendered config.
const POOL_INTERVAL: Duration = Duration::from_secs(5);

/// First words of the reason annotation of a node with config drift.
pub const DRIFT_REASON: &str = "unexpected on-disk state validating against";

/// The next action of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// State to pass to the next call.
    pub state: State,
    /// Action to carry out.
    pub action: Action,
    /// Wait after the action.
    pub wait: Wait,
}

/// The wait between an action and the next decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// No wait: observe again at once.
    No,
    /// Wait for a change, at most until this time.
    Until(Duration),
}

/// Decides the next action of a node. `now` counts from any fixed time.
#[must_use]
pub fn next(state: State, seen: &Observation, limits: &Limits, now: Duration) -> Decision {
    turn::Turn { state, seen, limits, now }.decide()
}
