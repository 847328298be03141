//! Says that a drain can never finish before anything is cordoned for it.
//!
//! Only a warning: the drain is tried all the same, because somebody may mend what blocks it.

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use mco_core::drain::{
    PodView,
    feasibility::{Feasibility, feasibility, is_counted},
};
use tracing::debug;

use crate::Context;

/// How many blockers are named; an event has little room.
const NAMED: usize = 3;

/// What blocks the drain of a node for ever, in words; none if nothing does, or nobody can tell.
pub(super) async fn blockers(context: &Context, node: &Node) -> Option<String> {
    let name = node.name_any();
    match look(context, &name).await {
        Ok(found) => said(&name, &found),
        Err(error) => {
            // The drain itself will say what is wrong with the API server.
            debug!(node = name, error = %error, "Drain cannot be foreseen");
            None
        }
    }
}

async fn look(context: &Context, node: &str) -> Result<Feasibility, kube::Error> {
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Pod>::all(context.client.clone()).list(&here).await?;
    if !pods.iter().any(|pod| PodView::of(pod).is_in_the_way()) {
        return Ok(Feasibility::default());
    }
    let budgets = Api::<PodDisruptionBudget>::all(context.client.clone());
    let mut budgets = budgets.list(&ListParams::default()).await?.items;
    // Without the pods of other nodes, only what Kubernetes counted itself can be trusted.
    budgets.retain(is_counted);
    Ok(feasibility(node, &pods.items, &budgets))
}

fn said(node: &str, found: &Feasibility) -> Option<String> {
    let named: Vec<String> = found.blockers.iter().take(NAMED).map(ToString::to_string).collect();
    let more = found.blockers.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!named.is_empty())
        .then(|| format!("node {node}: this drain cannot finish: {}{more}", named.join("; ")))
}
