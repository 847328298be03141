//! Coordination of the pools `master` and `arbiter`, which share the etcd quorum: the controller
//! never takes down a node of each at the same time.

use super::{PoolNodes, PoolPhase, PoolView, RolloutPlan};

/// The state of the other control plane pool; empty for every other pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlPlanePeer {
    /// Number of its nodes that are unavailable, or are updated first.
    pub unavailable: usize,
    /// Number of its nodes that are updating.
    pub updating: usize,
}

/// Selects nodes for two masters and an arbiter: the masters first, the arbiter when no master is
/// unavailable or still to be updated. If the masters are paused, the arbiter does not wait for
/// them.
///
/// Neither pool repairs a node while the other one does, but either may if no other node is
/// updating, so that a change that broke both can be reverted.
pub fn choose_control_plane(
    (masters, master_nodes): (&PoolView, &mut PoolNodes),
    (arbiter, arbiter_nodes): (&PoolView, &mut PoolNodes),
) -> (RolloutPlan, RolloutPlan) {
    let counts = arbiter_nodes.counts();
    let neighbour = ControlPlanePeer { unavailable: counts.slots, updating: counts.updating };
    let first = master_nodes.select(&PoolView { neighbour, ..masters.clone() });
    let pending = if masters.phase == PoolPhase::Active { master_nodes.pending() } else { 0 };
    let counts = master_nodes.counts();
    let neighbour = ControlPlanePeer {
        unavailable: counts.slots.saturating_add(pending),
        updating: counts.updating.saturating_add(first.starts.len()),
    };
    let second = arbiter_nodes.select(&PoolView { neighbour, ..arbiter.clone() });
    (first, second)
}
