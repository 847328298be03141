//! Selection of the nodes of a pool to update now, with the reasons why the others wait.
//!
//! `maxUnavailable` grants slots. A node occupies one while it is not ready, while it is being
//! updated, and while its update has failed: a failure may clear by itself, and two nodes must not
//! go down together then. Free slots go to available nodes: zones by name, and the oldest node of a
//! zone first, so that one wave does not span several zones.
//!
//! # A revert always wins
//!
//! Some nodes are retargeted without a free slot, before all others:
//!
//! - A node that is **updating to another config** is retargeted: while it works, while the
//!   controller has it cordoned, when it does not come back from its reboot, when it failed. It has
//!   its slot already, and retargeting does not change the number of nodes that are updating.
//! - A node that is **idle and unavailable** (not ready, or its daemon is degraded) is retargeted
//!   as long as fewer than `maxUnavailable` nodes are updating. It has its slot already, too. The
//!   limit is needed because the node may be healthier than it looks: after a network failure that
//!   hid a whole rack, all of its nodes must not reboot at once.
//!
//! So the number of nodes that the controller has updating stays within `maxUnavailable`, and a
//! config that broke a node can always be reverted on that node.
//!
//! A node that the user cordoned is left alone, in any state, until the user uncordons it. A cordon
//! belongs to the controller from the drain that the node's daemon requests until the uncordon has
//! been applied; every other cordon belongs to the user.
//!
//! # Differences from the reference
//!
//! - The reference retargets only nodes that are ready and schedulable, each for a free slot. A
//!   node that a config took down or left cordoned keeps that config however often the pool is
//!   reverted.
//! - There, a node that failed to apply *another* config occupies no slot and competes by zone and
//!   age with available nodes. Here the node keeps its slot and is retargeted first. Otherwise two
//!   nodes could be updating where one is allowed: the failed one as soon as its failure clears,
//!   and the next.
//! - There, nodes that are being updated finish before they are retargeted, unless slots are free.
//!   Here they are retargeted at once, which saves a reboot.
//! - There, the order is unspecified when all nodes fit. Here the order is always the same.

mod assessment;
mod control_plane;
pub mod first_boot;
mod limit;
mod notice;
mod plan;
mod pool_nodes;
pub mod scheduling;
pub mod taint;
mod view;

use mco_api::{MachineConfigPool, condition::PoolCondition};

pub use self::{
    control_plane::{ControlPlanePeer, choose_control_plane},
    limit::{BadLimit, max_unavailable},
    notice::notices,
    plan::{Hold, RolloutDecision, RolloutPlan},
    pool_nodes::{PoolNodes, RolloutCounts},
    view::{Cordon, NodeView, Readiness},
};

/// The parts of a pool that its rollout needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Name of the pool.
    pub name: String,
    /// Config that its nodes are to run.
    pub target: String,
    /// Pause or deletion of the pool.
    pub phase: PoolPhase,
    /// Number of nodes that may be unavailable at a time; none if not positive.
    pub max_unavailable: i64,
    /// Node that the operator runs on, which is updated last in the control plane.
    pub operator_node: Option<String>,
    /// State of the other control plane pool.
    pub neighbour: ControlPlanePeer,
    /// Treatment of nodes that run a built OS image.
    pub built_images: BuiltImages,
}

/// The treatment of nodes that run an OS image that was built in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuiltImages {
    /// The pool has no MachineOSConfig: the nodes return to the image of their config.
    #[default]
    Replace,
    /// The pool has a MachineOSConfig, and no process builds images: the nodes keep theirs.
    Keep,
}

/// The state of a pool that permits or forbids updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPhase {
    /// Nodes may be updated.
    Active,
    /// The administrator paused the pool.
    Paused,
    /// The pool is being deleted.
    Deleting,
}

impl PoolView {
    /// Reads a pool with this many nodes. The other control plane pool and the operator's node are
    /// left empty.
    pub fn of(pool: &MachineConfigPool, members: usize) -> Result<Self, BadLimit> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        Ok(Self {
            max_unavailable: max_unavailable(&name, pool.spec.max_unavailable.as_ref(), members)?,
            name,
            target: pool.spec.configuration.rendered.name.clone(),
            phase: PoolPhase::of(pool),
            operator_node: None,
            neighbour: ControlPlanePeer::default(),
            built_images: BuiltImages::of(pool),
        })
    }
}

impl BuiltImages {
    /// Reads the treatment from the condition that the controller set on the pool.
    fn of(pool: &MachineConfigPool) -> Self {
        let status = pool.status.as_ref();
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let keeps = crate::status::holds(conditions, &PoolCondition::ImageModeUnsupported);
        if keeps { Self::Keep } else { Self::Replace }
    }
}

impl PoolPhase {
    /// Reads the state of a pool.
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

/// Selects nodes to update within `maxUnavailable`, with the reasons why the others wait.
#[must_use]
pub fn select(pool: &PoolView, nodes: &[NodeView]) -> RolloutPlan {
    let mut pool_nodes = PoolNodes::with_target(&pool.target);
    for node in nodes {
        pool_nodes.set(node.clone());
    }
    let mut plan = pool_nodes.select(pool);
    plan.holds = pool_nodes.holds(pool, &plan);
    plan
}

#[cfg(test)]
mod tests;
