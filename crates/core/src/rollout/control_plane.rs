//! Masters and their arbiter, which vote together: never one of each out of service by our doing.

use super::{Fleet, Phase, PoolView, RolloutPlan};

/// What the other half of the control plane is up to; nothing, for every other pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// How many of its nodes are out of service, or go first.
    pub unavailable: usize,
    /// How many of its nodes were told something and are not through with it.
    pub moving: usize,
}

/// Chooses for two masters and an arbiter: the masters first, the arbiter when no master is out of
/// service and none still has to go. If the masters are paused, the arbiter does not wait for their
/// turn.
///
/// Neither half repairs a node while the other is at it, but either may when nobody else is under
/// way, so that a change that broke both can be taken back.
pub fn choose_control_plane(
    (masters, fleet): (&PoolView, &mut Fleet),
    (arbiter, arbiters): (&PoolView, &mut Fleet),
) -> (RolloutPlan, RolloutPlan) {
    let tally = arbiters.tally();
    let neighbour = Neighbour { unavailable: tally.places, moving: tally.moving };
    let first = fleet.choose(&PoolView { neighbour, ..masters.clone() });
    let turn = if masters.phase == Phase::Active { fleet.in_line() } else { 0 };
    let tally = fleet.tally();
    let neighbour = Neighbour {
        unavailable: tally.places.saturating_add(turn),
        moving: tally.moving.saturating_add(first.starts.len()),
    };
    let second = arbiters.choose(&PoolView { neighbour, ..arbiter.clone() });
    (first, second)
}
