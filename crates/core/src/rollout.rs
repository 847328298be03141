//! Chooses which nodes of a pool are told to run its target now, and says why the others wait.
//!
//! `maxUnavailable` grants places. A node takes one up while it is not ready, while it is in the
//! middle of an update, and while it has failed one: a failure may clear by itself, and two nodes
//! must not then go down together. Free places go to nodes in service, those of the first zone by
//! name first, the oldest before the others, so that one wave does not reach into several zones.
//!
//! # A revert always wins
//!
//! Some nodes get the target without a free place, before all others:
//!
//! - A node that is **under way to something else** is told the target instead: while it works,
//!   while we have it cordoned, when it does not come back from its reboot, when it failed. It has
//!   its place already, and telling it changes nothing about how many nodes are under way.
//! - A node that **stands still and is out of service** where it stands (not ready, or its daemon
//!   reports a fault) is told as long as fewer than `maxUnavailable` nodes are under way. It has its
//!   place already, too. The bound is there because it may be in better health than it looks: after a
//!   network failure that hid a whole rack, all of its nodes must not reboot at once.
//!
//! So the number of nodes under way by our doing stays within `maxUnavailable`, whatever is told to
//! whom, and a config that broke a node can always be taken back from it.
//!
//! A node that somebody else cordoned is theirs, in whatever state it is, until they uncordon it. A
//! cordon is ours from the drain that the node's daemon asks for until the uncordon has been carried
//! out; everything else is somebody else's.
//!
//! # Where this differs from the reference
//!
//! - The reference tells only nodes that are ready and schedulable, each for a free place. A node that
//!   a config took down or left cordoned keeps that config however often the pool is reverted.
//! - There, a node that failed *another* target takes up no place and competes by zone and age with
//!   nodes in service. Here it keeps its place and is told first. Otherwise two nodes could be under
//!   way where one is allowed: the failed one as soon as its fault clears, and the next.
//! - There, nodes in the middle of an update finish it before they hear of the next target, unless
//!   places are free. Here they hear of it at once, which spares them a reboot.
//! - There, nodes are told in no particular order when all of them fit. Here the order is always the
//!   same.

mod control_plane;
pub mod first_boot;
mod fleet;
mod limit;
mod notice;
mod plan;
pub mod scheduling;
mod stand;
pub mod taint;
mod view;

use mco_api::MachineConfigPool;

pub use self::{
    control_plane::{Neighbour, choose_control_plane},
    fleet::{Fleet, Tally},
    limit::{BadLimit, max_unavailable},
    notice::notices,
    plan::{Hold, RolloutPlan, Verdict},
    view::{Cordon, NodeView, Readiness},
};

/// A pool as far as its roll-out goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// The config its nodes are to run.
    pub target: String,
    /// Whether anything may start.
    pub phase: Phase,
    /// How many nodes may be out of service at a time; none if not positive.
    pub max_unavailable: i64,
    /// The node that the operator itself runs on, which goes last in the control plane.
    pub operator_node: Option<String>,
    /// What the other half of the control plane is up to.
    pub neighbour: Neighbour,
}

/// Whether a pool's nodes may be given a new config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// They may.
    Active,
    /// The administrator has put it on hold.
    Paused,
    /// The pool is going away.
    Deleting,
}

impl PoolView {
    /// What a pool with this many nodes says of itself; neither its neighbour nor the operator's node
    /// are known from that.
    pub fn of(pool: &MachineConfigPool, members: usize) -> Result<Self, BadLimit> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        Ok(Self {
            max_unavailable: max_unavailable(&name, pool.spec.max_unavailable.as_ref(), members)?,
            name,
            target: pool.spec.configuration.rendered.name.clone(),
            phase: Phase::of(pool),
            operator_node: None,
            neighbour: Neighbour::default(),
        })
    }
}

impl Phase {
    /// Whether the pool's nodes may be given a new config.
    #[must_use]
    pub fn of(pool: &MachineConfigPool) -> Self {
        if pool.metadata.deletion_timestamp.is_some() {
            Self::Deleting
        } else if pool.spec.paused {
            Self::Paused
        } else {
            Self::Active
        }
    }
}

/// Picks nodes to tell the pool's target, within its `maxUnavailable`, and says why others wait.
#[must_use]
pub fn select(pool: &PoolView, nodes: &[NodeView]) -> RolloutPlan {
    let mut fleet = Fleet::toward(&pool.target);
    for node in nodes {
        fleet.set(node.clone());
    }
    let mut plan = fleet.choose(pool);
    plan.holds = fleet.holds(pool, &plan);
    plan
}

#[cfg(test)]
mod tests;
