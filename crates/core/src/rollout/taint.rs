//! The taint `UpdateInProgress`, which makes the scheduler avoid nodes that will be updated soon.

use k8s_openapi::api::core::v1::{Node, Taint};

use super::{Hold, NodeView};

/// Key of the taint; it has no value.
pub const KEY: &str = "UpdateInProgress";

/// Effect of the taint: the scheduler avoids the node if it can.
pub const EFFECT: &str = "PreferNoSchedule";

/// The presence of the taint on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateTaint {
    /// The node does not have the taint.
    #[default]
    Absent,
    /// The node has the taint.
    Present,
}

impl UpdateTaint {
    /// Reads the taint of a node.
    pub(super) fn of(node: &Node) -> Self {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        if taints.into_iter().any(is_ours) { Self::Present } else { Self::Absent }
    }
}

/// Returns true if `taint` is this taint.
#[must_use]
pub fn is_ours(taint: &Taint) -> bool {
    taint.key == KEY && taint.effect == EFFECT
}

/// Returns the required change of a node's taint, for a pool with this target; `None` if there is
/// none.
///
/// `hold` is the reason why the node is not updated now. A node that is not updated before a user
/// changes the cluster has no taint: the scheduler would avoid it for ever.
///
/// Compat: the taint is removed once the node is targeted, which is when its update begins
/// (`pkg/controller/node/node_controller.go`, `updatePools`). So it marks the nodes that wait.
#[must_use]
pub fn change(node: &NodeView, target: &str, hold: Option<&Hold>) -> Option<UpdateTaint> {
    let leaves_image_mode = node.current_image.is_some() && node.desired_image.is_some();
    let waits = (node.desired != target || leaves_image_mode) && !is_stuck(hold);
    match (waits, node.taint) {
        (true, UpdateTaint::Absent) => Some(UpdateTaint::Present),
        (false, UpdateTaint::Present) => Some(UpdateTaint::Absent),
        (true, UpdateTaint::Present) | (false, UpdateTaint::Absent) => None,
    }
}

/// Returns true if the node can not be updated, whichever other nodes are done.
fn is_stuck(hold: Option<&Hold>) -> bool {
    match hold {
        Some(Hold::ImageMode | Hold::BadLimit(_) | Hold::Undecodable(_)) => true,
        Some(
            Hold::Paused
            | Hold::Deleting
            | Hold::NoCapacity
            | Hold::NotReady(_)
            | Hold::Cordoned
            | Hold::OperatorNode
            | Hold::ControlPlane,
        )
        | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::nodes;

    #[test]
    fn waiting_nodes_have_the_taint() {
        let cases = [
            ("a=old", UpdateTaint::Absent, Some(UpdateTaint::Present)),
            ("a=old", UpdateTaint::Present, None),
            ("a=working", UpdateTaint::Present, Some(UpdateTaint::Absent)),
            ("a=done", UpdateTaint::Absent, None),
        ];
        for (text, mark, expected) in cases {
            let node = NodeView { taint: mark, ..nodes(text).remove(0) };
            assert_eq!(change(&node, "new", None), expected, "{text} {mark:?}");
        }
    }

    #[test]
    fn nodes_that_cannot_be_updated_lose_the_taint() {
        let limit = crate::rollout::max_unavailable(
            "worker",
            Some(&k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::String(
                "x".to_owned(),
            )),
            3,
        );
        let node = NodeView { taint: UpdateTaint::Present, ..nodes("a=old").remove(0) };
        for hold in [Hold::ImageMode, Hold::BadLimit(limit.unwrap_err())] {
            assert_eq!(change(&node, "new", Some(&hold)), Some(UpdateTaint::Absent), "{hold}");
        }
        assert_eq!(change(&node, "new", Some(&Hold::NoCapacity)), None);
    }
}
