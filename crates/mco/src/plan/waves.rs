//! Waves of a rollout: the selection of `mco_core::rollout`, repeated as if every wave succeeds.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::{MachineConfigPool, annotation::DaemonState};
use mco_core::{
    lint::Pool,
    rollout::{self, NodeView, PoolPhase, PoolView},
};

/// The order of a pool's nodes.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) waves: Vec<Vec<String>>,
    /// Reasons of the nodes that are never selected.
    pub(super) waits: BTreeMap<String, String>,
}

/// Computes the waves, and records its assumptions.
pub(super) fn of(
    pool: &MachineConfigPool,
    from: &str,
    target: &str,
    members: &[NodeView],
    assumptions: &mut Vec<String>,
) -> Order {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let limit = pool.spec.max_unavailable.as_ref();
    let max_unavailable = match rollout::max_unavailable(&name, limit, members.len()) {
        Ok(limit) => limit,
        Err(error) => {
            let waits = members.iter().map(|node| (node.name.clone(), error.to_string()));
            return Order { waves: Vec::new(), waits: waits.collect() };
        }
    };
    let phase = if pool.metadata.deletion_timestamp.is_some() {
        PoolPhase::Deleting
    } else if pool.spec.paused {
        PoolPhase::Paused
    } else {
        PoolPhase::Active
    };
    let target = target.to_owned();
    let view = PoolView {
        name,
        target,
        phase,
        max_unavailable,
        operator_node: None,
        neighbour: rollout::ControlPlanePeer::default(),
        built_images: rollout::BuiltImages::default(),
    };
    let unknown = members.iter().filter(|node| node.current.is_empty()).count();
    if unknown > 0 {
        assumptions.push(format!(
            "{unknown} of {} nodes do not report their config; \
            assuming {from}",
            members.len()
        ));
    }
    let mut nodes: Vec<NodeView> = members.iter().map(|node| assumed(node.clone(), from)).collect();
    let mut order = Order::default();
    // Each wave contains a node of no earlier wave, so that there are no more waves than nodes.
    for _ in members {
        let plan = rollout::select(&view, &nodes);
        if plan.starts.is_empty() {
            break;
        }
        for node in nodes.iter_mut().filter(|node| plan.starts.contains(&node.name)) {
            finish(node, &view.target);
        }
        order.waves.push(plan.starts);
    }
    let held = rollout::select(&view, &nodes).holds;
    order.waits = held.into_iter().map(|(node, hold)| (node, hold.to_string())).collect();
    order
}

/// Assumes the pool's current config for a node whose daemon reported none.
fn assumed(mut node: NodeView, from: &str) -> NodeView {
    if node.current.is_empty() {
        from.clone_into(&mut node.current);
        from.clone_into(&mut node.desired);
        node.state = Some(DaemonState::Done);
    }
    node
}

fn finish(node: &mut NodeView, target: &str) {
    target.clone_into(&mut node.current);
    target.clone_into(&mut node.desired);
    node.current_image = None;
    node.desired_image = None;
    node.state = Some(DaemonState::Done);
    node.reason = String::new();
}

/// Returns the pool with a node selector: an assumed pool selects the nodes of its role.
pub(super) fn selectable(pool: &Pool) -> MachineConfigPool {
    let mut value = pool.value.clone();
    if pool.object.is_none() {
        let role = (format!("node-role.kubernetes.io/{}", pool.name), String::new());
        value.spec.node_selector =
            Some(LabelSelector { match_labels: Some([role].into()), match_expressions: None });
    }
    value
}
