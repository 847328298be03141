//! How a node stands towards its pool's target: whether it counts, and what it needs.

use super::{Cordon, Hold, NodeView, Readiness};

/// How a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stand {
    /// How many of the places that `maxUnavailable` grants it takes up.
    pub(super) places: usize,
    /// Whether it was told something and is not through with it.
    pub(super) moving: bool,
    /// What it needs.
    pub(super) need: Need,
}

/// What a node needs to get to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// It has been told already.
    Nothing,
    /// It is on its way to something else: it only has to be told.
    Redirect,
    /// It stands still and is out of service where it stands.
    Rescue(Reach),
    /// It is in service: a free slot.
    Slot,
    /// Labels of the pool it was booted for, and nothing from this one.
    Labels,
    /// That this passes.
    Wait(Hold),
}

/// How likely a node that is out of service hears of a new target; better ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// It is ready, so its daemon runs.
    Ready,
    /// It says itself that it is not ready.
    Speaks,
    /// Nothing is heard of it.
    Silent,
}

impl Stand {
    /// How the node stands towards this target.
    pub(super) fn of(node: &NodeView, target: &str) -> Self {
        // One that was told the target and reports a fault may still be on its way back to it.
        let moving = node.is_moving() || (node.is_at(target) && node.is_degraded());
        Self { places: places(node, target), moving, need: need(node, target) }
    }
}

/// Compat: a node that failed the target and is not ready takes up two places
/// (`pkg/controller/node/node_controller.go`, `getAllCandidateMachines`).
fn places(node: &NodeView, target: &str) -> usize {
    let out = node.is_unavailable();
    let failed = node.is_failing() && (node.is_at(target) || !out);
    usize::from(out) + usize::from(failed)
}

fn need(node: &NodeView, target: &str) -> Need {
    if node.is_at(target) {
        return Need::Nothing;
    }
    if node.cordon == Cordon::Theirs {
        return Need::Wait(Hold::Cordoned);
    }
    if node.claim.is_some() && node.is_ready() {
        return Need::Labels;
    }
    // Without a word from its daemon, nothing says that the node is really on its way.
    if node.is_moving() && !node.current.is_empty() {
        return Need::Redirect;
    }
    match &node.readiness {
        Readiness::Ready if node.desired.is_empty() || node.is_done() => Need::Slot,
        Readiness::Ready => Need::Rescue(Reach::Ready),
        Readiness::Not(why) if node.desired.is_empty() => Need::Wait(Hold::NotReady(why.clone())),
        Readiness::Not(why) if why.ends_with("=Unknown") => Need::Rescue(Reach::Silent),
        Readiness::Not(_) => Need::Rescue(Reach::Speaks),
    }
}
