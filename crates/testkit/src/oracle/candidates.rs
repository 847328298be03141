//! Suite: a pool with its nodes, and the nodes that the reference updates next.
//!
//! Intended differences, which depend on the nodes:
//!
//! - **A node that is unavailable or updating is retargeted without a slot**; the reference skips
//!   it, or lets it compete with available nodes. The remaining candidates follow the reference's
//!   own order.
//! - **A node that failed another target keeps its slot** instead of giving it away.
//! - **A failed master blocks the arbiter**, because it may resume by itself at any time.
//! - **Nodes that all fit are updated in order**; the reference takes them in map order.

mod arbiter;

use std::{cmp::Reverse, collections::BTreeSet};

use k8s_openapi::api::core::v1::Node;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::{
    membership::Pools,
    rollout::{
        self, BuiltImages, ControlPlanePeer, Cordon, NodeView, PoolPhase, PoolView, RolloutPlan,
        first_boot,
        taint::{self, UpdateTaint},
    },
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
    #[serde(default)]
    machine_configs: Vec<MachineConfig>,
    nodes: Vec<Node>,
    operator_node: Option<String>,
    #[serde(default)]
    coordination: bool,
}

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let input: Input = parsed(input)?;
    let members = members(&input, &input.pool);
    if input.coordination {
        return arbiter::check(&input, &members, expect);
    }
    let target = input.pool.spec.configuration.rendered.name.as_str();
    let mut found = json!({
        "members": names(&members, |_| true),
        "updated": names(&members, |node| node.is_updated(target)),
        "ready": names(&members, |node| node.is_updated(target) && node.is_ready()),
        "degraded": names(&members, NodeView::is_degraded),
        "unavailable": names(&members, NodeView::is_unavailable),
    });
    let pool = match view(&input.pool, members.len(), input.operator_node.clone()) {
        Ok(pool) => pool,
        Err(error) => {
            put(&mut found, "error", json!(error.to_string()));
            return difference(expect, &found).map_or(Ok(()), Err);
        }
    };
    if text(expect, "error").is_some() {
        return Err("expected an error".to_owned());
    }
    let plan = rollout::select(&pool, &members);
    let [add, remove] = taints(&pool, &members);
    put(&mut found, "maxUnavailable", json!(pool.max_unavailable));
    put(&mut found, "taintAdd", json!(add));
    put(&mut found, "taintRemove", json!(remove));
    // `tieSensitive` tells if the recording depends on the order of its input; there is nothing to
    // compare.
    put(&mut found, "tieSensitive", expect.get("tieSensitive").cloned().unwrap_or_default());
    let mut expect = expect.clone();
    choices(&pool, &members, &plan, &mut expect, &mut found)?;
    difference(&expect, &found).map_or(Ok(()), Err)
}

/// Returns the pool's nodes, each with the labels by which another pool selects it.
fn members(input: &Input, pool: &MachineConfigPool) -> Vec<NodeView> {
    let all = || input.other_pools.iter().chain([&input.pool]);
    let (pools, name) = (Pools::new(all()), pool.metadata.name.as_deref());
    let belongs = |node: &&Node| {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        pools.of("", &labels).is_ok_and(|found| found.primary() == name)
    };
    let config = |name: &str| {
        input.machine_configs.iter().find(|config| config.metadata.name.as_deref() == Some(name))
    };
    let pool = |name: &str| all().find(|pool| pool.metadata.name.as_deref() == Some(name));
    let read = |node: &Node| {
        let mut view = NodeView::of(node);
        view.pool_labels = first_boot::claim(&view, config, pool);
        view
    };
    input.nodes.iter().filter(belongs).map(read).collect()
}

fn names(members: &[NodeView], counts: impl Fn(&NodeView) -> bool) -> Vec<String> {
    members.iter().filter(|node| counts(node)).map(|node| node.name.clone()).collect()
}

fn view(
    pool: &MachineConfigPool,
    members: usize,
    operator_node: Option<String>,
) -> Result<PoolView, rollout::BadLimit> {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let limit = pool.spec.max_unavailable.as_ref();
    let max_unavailable = rollout::max_unavailable(&name, limit, members)?;
    let phase = match (pool.spec.paused, pool.metadata.deletion_timestamp.is_some()) {
        (_, true) => PoolPhase::Deleting,
        (true, false) => PoolPhase::Paused,
        (false, false) => PoolPhase::Active,
    };
    let target = pool.spec.configuration.rendered.name.clone();
    let neighbour = ControlPlanePeer::default();
    let built_images = BuiltImages::Replace;
    Ok(PoolView { name, target, phase, max_unavailable, operator_node, neighbour, built_images })
}

/// Returns the nodes that get the taint and those that lose it.
fn taints(pool: &PoolView, members: &[NodeView]) -> [Vec<String>; 2] {
    [UpdateTaint::Present, UpdateTaint::Absent].map(|mark| {
        let changes = |node: &NodeView| taint::change(node, &pool.target, None) == Some(mark);
        let mut nodes =
            if pool.phase == PoolPhase::Active { names(members, changes) } else { vec![] };
        nodes.sort();
        nodes
    })
}

/// Returns the candidates and the selected nodes. Where a rule applies, the expectation is adapted.
fn choices(
    pool: &PoolView,
    members: &[NodeView],
    plan: &RolloutPlan,
    expect: &mut Value,
    found: &mut Value,
) -> Result<(), String> {
    let capacity = expect.get("capacity").and_then(Value::as_u64).unwrap_or_default();
    let capacity = usize::try_from(capacity).unwrap_or_default();
    let is_candidate = |node: &NodeView| !node.is_targeted(&pool.target) && node.is_ready();
    let candidates = if capacity > 0 { names(members, is_candidate) } else { Vec::new() };
    put(found, "candidates", json!(candidates));
    put(found, "capacity", json!(plan.capacity));
    let mut labelled: Vec<&String> = plan.labels.iter().map(|(node, _)| node).collect();
    labelled.sort();
    if !labelled.is_empty() {
        put(found, "labelled", json!(labelled));
    }
    let deferral = plan.passed_over().map(|text| format!("DeferringOperatorNodeUpdate {text}"));
    let starts = plan.started().map(|text| format!("SetDesiredConfig {text}"));
    let events: Vec<_> =
        deferral.into_iter().chain(starts).map(|event| format!("Normal {event}")).collect();
    put(found, "events", json!(events));
    put(found, "targeted", json!(plan.starts));

    let failed = members.iter().filter(|node| node.is_ready() && failed_elsewhere(pool, node));
    let left = capacity.saturating_sub(failed.count());
    put(expect, "capacity", json!(left));
    check_repairs(pool, members, plan)?;
    let differs_on_purpose = !plan.repairs.is_empty() || left != capacity;
    if differs_on_purpose {
        let slots = by_slot(pool, members, plan, if candidates.is_empty() { 0 } else { left });
        let targeted: Vec<&String> = plan.repairs.iter().chain(&slots).collect();
        put(expect, "targeted", json!(targeted));
        for member in ["events", "labelled"] {
            put(expect, member, found.get(member).cloned().unwrap_or_default());
        }
    } else if all_fit(&candidates, plan, capacity) {
        for side in [expect, found] {
            let targeted =
                side.get("targeted").and_then(Value::as_array).cloned().unwrap_or_default();
            let targeted: BTreeSet<String> = targeted.iter().map(Value::to_string).collect();
            put(side, "targeted", json!(targeted));
        }
    }
    Ok(())
}

/// Returns true if the reference had no need to sort.
fn all_fit(candidates: &[String], plan: &RolloutPlan, capacity: usize) -> bool {
    let passed_over = plan.labels.len() + usize::from(plan.deferred.is_some());
    candidates.len().saturating_sub(passed_over) <= capacity
}

fn failed_elsewhere(pool: &PoolView, node: &NodeView) -> bool {
    node.is_failing() && !node.is_targeted(&pool.target)
}

/// Checks that only unavailable or updating nodes are retargeted without a slot, and that all
/// updating ones are.
fn check_repairs(pool: &PoolView, members: &[NodeView], plan: &RolloutPlan) -> Result<(), String> {
    for node in members.iter().filter(|node| !node.is_targeted(&pool.target)) {
        let targeted = plan.repairs.contains(&node.name);
        let is_out = !node.is_done() || !node.is_ready();
        let theirs = node.cordon == Cordon::User;
        if targeted && (!is_out || theirs || pool.phase != PoolPhase::Active) {
            return Err(format!("{} is retargeted although it is available", node.name));
        }
        let under_way =
            node.is_updating() && !node.current.is_empty() && node.pool_labels.is_none();
        if under_way && !theirs && !targeted && pool.phase == PoolPhase::Active {
            return Err(format!(
                "{} is updating to another target and is not retargeted",
                node.name
            ));
        }
    }
    Ok(())
}

/// Returns the nodes that the reference would select for these free slots, without the retargeted
/// ones.
fn by_slot(pool: &PoolView, members: &[NodeView], plan: &RolloutPlan, slots: usize) -> Vec<String> {
    let waits = |node: &&NodeView| !node.is_targeted(&pool.target) && node.is_ready();
    let is_free = |node: &&NodeView| {
        !plan.repairs.contains(&node.name)
            && (node.is_done() || node.desired.is_empty())
            && node.pool_labels.is_none()
            && plan.deferred.as_ref() != Some(&node.name)
    };
    let mut free: Vec<&NodeView> = members.iter().filter(waits).filter(is_free).collect();
    free.sort_by_key(|node| {
        (Reverse(node.zone.is_some()), node.zone.clone(), node.created.clone())
    });
    let active = if pool.phase == PoolPhase::Active { slots } else { 0 };
    free.into_iter().take(active).map(|node| node.name.clone()).collect()
}
