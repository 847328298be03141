//! A pool with its nodes, and which of them the reference gives the new config next.
//!
//! Where we differ on purpose, the nodes say so:
//!
//! - **A node that is out of service or under way is told without a slot**; the reference passes it
//!   over, or lets it compete with nodes in service. What is left of the reference's candidates then
//!   goes by the reference's own order.
//! - **A node that failed another target keeps its place** instead of giving it away.
//! - **A master that failed keeps the arbiter waiting**, because it may go on by itself at any time.
//! - **Nodes that all fit are told in order**; the reference tells them as they come out of a map.

mod arbiter;

use std::{cmp::Reverse, collections::BTreeSet};

use k8s_openapi::api::core::v1::Node;
use mco_api::{MachineConfig, MachineConfigPool};
use mco_core::{
    membership::Pools,
    rollout::{
        self, Cordon, Neighbour, NodeView, Phase, PoolView, RolloutPlan, first_boot,
        taint::{self, Mark},
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
        return Err("expected a refusal".to_owned());
    }
    let plan = rollout::select(&pool, &members);
    let [add, remove] = taints(&pool, &members);
    put(&mut found, "maxUnavailable", json!(pool.max_unavailable));
    put(&mut found, "taintAdd", json!(add));
    put(&mut found, "taintRemove", json!(remove));
    // Says whether the recording depends on the order of its input, which is nothing to decide.
    put(&mut found, "tieSensitive", expect.get("tieSensitive").cloned().unwrap_or_default());
    let mut expect = expect.clone();
    choices(&pool, &members, &plan, &mut expect, &mut found)?;
    difference(&expect, &found).map_or(Ok(()), Err)
}

/// The pool's nodes, each with the labels that another pool claims it by.
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
        view.claim = first_boot::claim(&view, config, pool);
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
        (_, true) => Phase::Deleting,
        (true, false) => Phase::Paused,
        (false, false) => Phase::Active,
    };
    let target = pool.spec.configuration.rendered.name.clone();
    let neighbour = Neighbour::default();
    Ok(PoolView { name, target, phase, max_unavailable, operator_node, neighbour })
}

/// The nodes that get the taint and those that lose it.
fn taints(pool: &PoolView, members: &[NodeView]) -> [Vec<String>; 2] {
    [Mark::Present, Mark::Absent].map(|mark| {
        let changes = |node: &NodeView| taint::change(node, &pool.target) == Some(mark);
        let mut nodes = if pool.phase == Phase::Active { names(members, changes) } else { vec![] };
        nodes.sort();
        nodes
    })
}

/// The candidates and who is told; where a rule applies, the expectation is made to follow it.
fn choices(
    pool: &PoolView,
    members: &[NodeView],
    plan: &RolloutPlan,
    expect: &mut Value,
    found: &mut Value,
) -> Result<(), String> {
    let capacity = expect.get("capacity").and_then(Value::as_u64).unwrap_or_default();
    let capacity = usize::try_from(capacity).unwrap_or_default();
    let is_candidate = |node: &NodeView| !node.is_at(&pool.target) && node.is_ready();
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
    sound(pool, members, plan)?;
    let is_differently_told = !plan.repairs.is_empty() || left != capacity;
    if is_differently_told {
        let slots = by_slot(pool, members, plan, if candidates.is_empty() { 0 } else { left });
        let told: Vec<&String> = plan.repairs.iter().chain(&slots).collect();
        put(expect, "targeted", json!(told));
        for member in ["events", "labelled"] {
            put(expect, member, found.get(member).cloned().unwrap_or_default());
        }
    } else if all_fit(&candidates, plan, capacity) {
        for side in [expect, found] {
            let told = side.get("targeted").and_then(Value::as_array).cloned().unwrap_or_default();
            let told: BTreeSet<String> = told.iter().map(Value::to_string).collect();
            put(side, "targeted", json!(told));
        }
    }
    Ok(())
}

/// Whether the reference had no need to sort.
fn all_fit(candidates: &[String], plan: &RolloutPlan, capacity: usize) -> bool {
    let passed_over = plan.labels.len() + usize::from(plan.deferred.is_some());
    candidates.len().saturating_sub(passed_over) <= capacity
}

fn failed_elsewhere(pool: &PoolView, node: &NodeView) -> bool {
    node.is_failing() && !node.is_at(&pool.target)
}

/// Whether only nodes that are out of service or under way are told without a slot, all of those
/// that are under way among them.
fn sound(pool: &PoolView, members: &[NodeView], plan: &RolloutPlan) -> Result<(), String> {
    for node in members.iter().filter(|node| !node.is_at(&pool.target)) {
        let told = plan.repairs.contains(&node.name);
        let is_out = !node.is_done() || !node.is_ready();
        let theirs = node.cordon == Cordon::Theirs;
        if told && (!is_out || theirs || pool.phase != Phase::Active) {
            return Err(format!("{} is told although nothing is wrong with it", node.name));
        }
        let under_way = node.is_moving() && !node.current.is_empty() && node.claim.is_none();
        if under_way && !theirs && !told && pool.phase == Phase::Active {
            return Err(format!("{} is under way elsewhere and is not told", node.name));
        }
    }
    Ok(())
}

/// Whom the reference would tell for these free slots if nobody else were there.
fn by_slot(pool: &PoolView, members: &[NodeView], plan: &RolloutPlan, slots: usize) -> Vec<String> {
    let waits = |node: &&NodeView| !node.is_at(&pool.target) && node.is_ready();
    let is_free = |node: &&NodeView| {
        !plan.repairs.contains(&node.name)
            && (node.is_done() || node.desired.is_empty())
            && node.claim.is_none()
            && plan.deferred.as_ref() != Some(&node.name)
    };
    let mut free: Vec<&NodeView> = members.iter().filter(waits).filter(is_free).collect();
    free.sort_by_key(|node| {
        (Reverse(node.zone.is_some()), node.zone.clone(), node.created.clone())
    });
    let active = if pool.phase == Phase::Active { slots } else { 0 };
    free.into_iter().take(active).map(|node| node.name.clone()).collect()
}
