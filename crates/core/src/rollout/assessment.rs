//! Assessment of a node against its pool's target: the slots it occupies and what it needs.

use super::{BuiltImages, Cordon, Hold, NodeView, Readiness};

/// The assessment of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assessment {
    /// Number of `maxUnavailable` slots that the node occupies.
    pub(super) slots: usize,
    /// True if the node is updating.
    pub(super) updating: bool,
    /// Requirement to reach the target.
    pub(super) need: Need,
}

/// The requirement of a node to reach the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The node is targeted already.
    Nothing,
    /// The node is updating to another config and only needs to be retargeted.
    Redirect,
    /// The node is idle and unavailable.
    Rescue(Responsiveness),
    /// The node is available and needs a free slot.
    Slot,
    /// The node needs the labels of the custom pool it was booted for, and nothing from this pool.
    Labels,
    /// The node waits for this reason to pass.
    Wait(Hold),
}

/// The likelihood that an unavailable node reacts to a new target; best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Responsiveness {
    /// The node is ready, so its daemon runs.
    Ready,
    /// The kubelet reports that the node is not ready.
    NotReady,
    /// The kubelet has stopped reporting.
    Unknown,
}

impl Assessment {
    /// Assesses a node.
    pub(super) fn of(node: &NodeView, target: &str, built_images: BuiltImages) -> Self {
        // A degraded node that has the target may still be returning to it.
        let updating = node.is_updating() || (node.is_targeted(target) && node.is_degraded());
        Self { slots: slots(node, target), updating, need: need(node, target, built_images) }
    }
}

/// Returns the number of slots that a node occupies.
///
/// Compat: a node that failed to apply the target and is not ready occupies two slots
/// (`pkg/controller/node/node_controller.go`, `getAllCandidateMachines`).
fn slots(node: &NodeView, target: &str) -> usize {
    let out = node.is_unavailable();
    let failed = node.is_failing() && (node.is_targeted(target) || !out);
    usize::from(out) + usize::from(failed)
}

fn need(node: &NodeView, target: &str, built_images: BuiltImages) -> Need {
    if node.is_targeted(target) {
        return Need::Nothing;
    }
    if built_images == BuiltImages::Keep && node.has_built_image() {
        let is_current = node.desired == target;
        return if is_current { Need::Nothing } else { Need::Wait(Hold::ImageMode) };
    }
    if node.cordon == Cordon::User {
        return Need::Wait(Hold::Cordoned);
    }
    if node.pool_labels.is_some() && node.is_ready() {
        return Need::Labels;
    }
    // Without a report of its daemon there is no evidence that the node is updating.
    if node.is_updating() && !node.current.is_empty() {
        return Need::Redirect;
    }
    match &node.readiness {
        Readiness::Ready if node.desired.is_empty() || node.is_done() => Need::Slot,
        Readiness::Ready => Need::Rescue(Responsiveness::Ready),
        Readiness::Not(why) if node.desired.is_empty() => Need::Wait(Hold::NotReady(why.clone())),
        Readiness::Not(why) if why.ends_with("=Unknown") => Need::Rescue(Responsiveness::Unknown),
        Readiness::Not(_) => Need::Rescue(Responsiveness::NotReady),
    }
}
