//! Warns of a drain that can never complete, before any pod is evicted for it.
//!
//! It is only a warning: the drain is attempted all the same, because the blocker may be fixed
//! meanwhile.

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::api::ListParams;
use mco_cluster::Api;
use mco_core::drain::feasibility::{Feasibility, feasibility, is_counted};
use tracing::debug;

use crate::Context;

/// Maximum number of blockers in an event message.
const MAX_NAMED: usize = 3;

/// Lists the budgets of the cluster and describes what blocks the drain of a node with these pods
/// for ever; `None` if nothing does, or the budgets cannot be listed.
pub(super) async fn fetch_blockers(context: &Context, node: &str, pods: &[Pod]) -> Option<String> {
    let budgets = Api::<PodDisruptionBudget>::all(context.client.clone());
    match budgets.list(&ListParams::default()).await {
        Ok(budgets) => {
            let mut budgets = budgets.items;
            // Without the pods of other nodes, only budgets with a status computed by Kubernetes
            // can be trusted.
            budgets.retain(is_counted);
            describe(node, &feasibility(node, pods, &budgets))
        }
        Err(error) => {
            // The drain itself reports errors of the API server.
            debug!(node, error = %error, "Failed to list PodDisruptionBudgets before the drain");
            None
        }
    }
}

fn describe(node: &str, found: &Feasibility) -> Option<String> {
    let named: Vec<String> =
        found.blockers.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let more = found.blockers.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!named.is_empty())
        .then(|| format!("node {node}: this drain cannot finish: {}{more}", named.join("; ")))
}
