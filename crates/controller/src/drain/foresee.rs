//! Says that a drain can never finish before any pod goes for it.
//!
//! Only a warning: the drain is tried all the same, because somebody may mend what blocks it.

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{Api, api::ListParams};
use mco_core::drain::feasibility::{Feasibility, feasibility, is_counted};
use tracing::debug;

use crate::Context;

/// How many blockers are named; an event has little room.
const NAMED: usize = 3;

/// What blocks the drain of a node with these pods for ever, in words; none if nothing does, or nobody
/// can tell.
pub(super) async fn blockers(context: &Context, node: &str, pods: &[Pod]) -> Option<String> {
    let budgets = Api::<PodDisruptionBudget>::all(context.client.clone());
    match budgets.list(&ListParams::default()).await {
        Ok(budgets) => {
            let mut budgets = budgets.items;
            // Without the pods of other nodes, only what Kubernetes counted itself can be trusted.
            budgets.retain(is_counted);
            said(node, &feasibility(node, pods, &budgets))
        }
        Err(error) => {
            // The drain itself will say what is wrong with the API server.
            debug!(node, error = %error, "Drain cannot be foreseen");
            None
        }
    }
}

fn said(node: &str, found: &Feasibility) -> Option<String> {
    let named: Vec<String> = found.blockers.iter().take(NAMED).map(ToString::to_string).collect();
    let more = found.blockers.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!named.is_empty())
        .then(|| format!("node {node}: this drain cannot finish: {}{more}", named.join("; ")))
}
