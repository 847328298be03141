//! A pool with its nodes, and which of them the reference gives the new config next.

use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigPool;
use mco_core::{
    membership::Pools,
    rollout::{self, NodeView, Phase, PoolView},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{difference, parsed, put, text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    pool: MachineConfigPool,
    #[serde(default)]
    other_pools: Vec<MachineConfigPool>,
    nodes: Vec<Node>,
    operator_node: Option<String>,
}

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let Input { pool, other_pools, nodes, operator_node } = parsed(input)?;
    let name = pool.metadata.name.clone().unwrap_or_default();
    let pools = Pools::new(other_pools.iter().chain([&pool]));
    let belongs = |node: &&Node| {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        pools.of("", &labels).is_ok_and(|found| found.primary() == Some(name.as_str()))
    };
    let members: Vec<NodeView> = nodes.iter().filter(belongs).map(NodeView::of).collect();
    let target = pool.spec.configuration.rendered.name.as_str();
    let names = |counts: &dyn Fn(&NodeView) -> bool| -> Vec<String> {
        members.iter().filter(|node| counts(node)).map(|node| node.name.clone()).collect()
    };
    let mut found = json!({
        "members": names(&|_| true),
        "updated": names(&|node| node.is_updated(target)),
        "ready": names(&|node| node.is_updated(target) && node.is_ready()),
        "degraded": names(&NodeView::is_degraded),
        "unavailable": names(&NodeView::is_unavailable),
    });
    let limit = pool.spec.max_unavailable.as_ref();
    let max_unavailable = match rollout::max_unavailable(&name, limit, members.len()) {
        Ok(limit) => limit,
        Err(error) => {
            put(&mut found, "error", json!(error.to_string()));
            return difference(expect, &found).map_or(Ok(()), Err);
        }
    };
    let phase = match (pool.spec.paused, pool.metadata.deletion_timestamp.is_some()) {
        (_, true) => Phase::Deleting,
        (true, false) => Phase::Paused,
        (false, false) => Phase::Active,
    };
    let view = PoolView { name, target: target.to_owned(), phase, max_unavailable, operator_node };
    let plan = rollout::select(&view, &members);
    let events: Vec<String> = plan
        .deferred()
        .map(|node| {
            format!(
                "Normal DeferringOperatorNodeUpdate \
                 Deferring update of machine config operator node {node}"
            )
        })
        .into_iter()
        .chain(plan.started().map(|text| format!("Normal SetDesiredConfig {text}")))
        .collect();
    put(&mut found, "maxUnavailable", json!(max_unavailable));
    put(&mut found, "targeted", json!(plan.starts));
    put(&mut found, "capacity", json!(plan.capacity));
    put(&mut found, "events", json!(events));
    // What the plan does not decide yet is taken as given.
    for member in ["candidates", "labelled", "taintAdd", "taintRemove", "tieSensitive"] {
        if let Some(value) = expect.get(member) {
            put(&mut found, member, value.clone());
        }
    }
    if text(expect, "error").is_some() {
        return Err("expected a refusal".to_owned());
    }
    difference(expect, &found).map_or(Ok(()), Err)
}
