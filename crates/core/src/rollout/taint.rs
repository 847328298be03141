//! The taint that keeps pods off nodes that will be updated soon, where there is a choice.

use k8s_openapi::api::core::v1::{Node, Taint};

use super::NodeView;

/// Key of the taint; it has no value.
pub const KEY: &str = "UpdateInProgress";

/// Effect of the taint: pods go elsewhere if they can.
pub const EFFECT: &str = "PreferNoSchedule";

/// Whether a node carries the taint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// It does not.
    #[default]
    Absent,
    /// It does.
    Present,
}

impl Mark {
    /// Looks for the taint.
    pub(super) fn of(node: &Node) -> Self {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        if taints.into_iter().any(is_ours) { Self::Present } else { Self::Absent }
    }
}

/// Whether this is the taint.
#[must_use]
pub fn is_ours(taint: &Taint) -> bool {
    taint.key == KEY && taint.effect == EFFECT
}

/// What is to be done about the taint of a node of a pool with this target; nothing if all is well.
///
/// Compat: it goes once the node has been told the target, which is when its update begins
/// (`pkg/controller/node/node_controller.go`, `updatePools`). So it marks the nodes that wait.
#[must_use]
pub fn change(node: &NodeView, target: &str) -> Option<Mark> {
    let in_image_mode = node.current_image.is_some() && node.desired_image.is_some();
    let waits = node.desired != target || in_image_mode;
    match (waits, node.mark) {
        (true, Mark::Absent) => Some(Mark::Present),
        (false, Mark::Present) => Some(Mark::Absent),
        (true, Mark::Present) | (false, Mark::Absent) => None,
    }
}
