//! The reason to wait as the controller reports it, for what the objects of a status do not show: objects
//! that cannot be decoded, the node of the operator, and the other control plane pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mco_api::{MachineConfigNode, condition::NodeCondition};

use crate::rollout::Hold;

/// Returns the reason for which the controller does not start the update of a node to `target`.
pub(super) fn hold(report: &MachineConfigNode, target: &str) -> Option<Hold> {
    let is_waiting =
        |it: &&Condition| it.type_ == NodeCondition::Waiting.as_str() && it.status == "True";
    let condition = report.status.as_ref()?.conditions.iter().find(is_waiting)?;
    // A report about an earlier target is out of date.
    let text = condition.message.strip_prefix(&format!("Node waits for {target}: "))?;
    match condition.reason.as_str() {
        "OperatorNode" => Some(Hold::OperatorNode),
        "ControlPlane" => Some(Hold::ControlPlane),
        "Undecodable" => Some(Hold::Undecodable(text.to_owned())),
        _ => None,
    }
}
