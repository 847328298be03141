//! Two masters and their arbiter, which are selected together.

use std::collections::BTreeSet;

use mco_core::rollout::{self, NodeView, PoolNodes, PoolPhase, PoolView};
use serde_json::{Value, json};

use super::{Input, difference, failed_elsewhere, members, put, taints, view};

pub(super) fn check(input: &Input, masters: &[NodeView], expect: &Value) -> Result<(), String> {
    let is_arbiter = |pool: &&_| name(pool) == Some("arbiter");
    let arbiter = input.other_pools.iter().find(is_arbiter).ok_or("no arbiter pool")?;
    let arbiters = members(input, arbiter);
    let refused = |error: rollout::BadLimit| error.to_string();
    let first = view(&input.pool, masters.len(), input.operator_node.clone()).map_err(refused)?;
    let second = view(arbiter, arbiters.len(), None).map_err(refused)?;
    let (mut fleet, mut others) = (fleet(&first, masters), fleet(&second, &arbiters));
    let (left, right) = rollout::choose_control_plane((&first, &mut fleet), (&second, &mut others));
    let targeted: BTreeSet<String> = left.starts.iter().chain(&right.starts).cloned().collect();
    let marks = [taints(&first, masters), taints(&second, &arbiters)];
    let mut found = json!({ "targetedSet": targeted });
    for (index, member) in ["taintAdd", "taintRemove"].into_iter().enumerate() {
        let nodes: BTreeSet<&String> =
            marks.iter().filter_map(|mark| mark.get(index)).flatten().collect();
        put(&mut found, member, json!(nodes));
    }
    let mut expect = expect.clone();
    if first.phase != PoolPhase::Active {
        // The arbiter of paused masters is handled alone, in another reconcile.
        let masters = taints(&first, masters);
        for (member, nodes) in ["taintAdd", "taintRemove"].into_iter().zip(masters) {
            put(&mut found, member, json!(nodes));
        }
        put(&mut expect, "targetedSet", json!(targeted));
    }
    let differs_on_purpose = !left.repairs.is_empty()
        || !right.repairs.is_empty()
        || masters.iter().chain(&arbiters).any(NodeView::is_failing)
        || masters.iter().any(|node| failed_elsewhere(&first, node));
    if differs_on_purpose {
        let expected = expect.get("targetedSet").and_then(Value::as_array).cloned();
        let expected: BTreeSet<String> =
            expected.iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let repairs: BTreeSet<&String> = left.repairs.iter().chain(&right.repairs).collect();
        if let Some(node) = targeted.iter().find(|n| !repairs.contains(n) && !expected.contains(*n))
        {
            return Err(format!("{node} gets a slot, but not in the reference"));
        }
        put(&mut expect, "targetedSet", json!(targeted));
    }
    difference(&expect, &found).map_or(Ok(()), Err)
}

fn name(pool: &mco_api::MachineConfigPool) -> Option<&str> {
    pool.metadata.name.as_deref()
}

fn fleet(pool: &PoolView, members: &[NodeView]) -> PoolNodes {
    let mut fleet = PoolNodes::with_target(&pool.target);
    for node in members {
        fleet.set(node.clone());
    }
    fleet
}
