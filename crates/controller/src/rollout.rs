//! Plans the roll-out of one pool from the caches and the node index. Nothing here writes or waits.

use kube::ResourceExt as _;
use mco_api::MachineConfigPool;
use mco_cluster::report::chain;
use mco_core::{
    check,
    node_index::NodeIndex,
    rollout::{BadLimit, BuiltImages, Hold, PoolPhase, PoolView, RolloutDecision, RolloutPlan},
};
use tracing::{error, warn};

use crate::{Context, control_plane};

/// Plans which nodes of the pool start to update now.
///
/// Returns the verdict on the nodes that wait, and the plan; no plan if the pool cannot update or
/// if the plan breaks an invariant. `operator_node` is the node that the operator runs on, which
/// updates last.
pub(crate) fn plan(
    context: &Context,
    pool: &MachineConfigPool,
    operator_node: Option<String>,
) -> (RolloutDecision, Option<RolloutPlan>) {
    let name = pool.name_any();
    let refused = |hold: Hold| {
        warn!(pool = name, why = %hold, "No node of the pool can start to update");
        let target = &pool.spec.configuration.rendered.name;
        (RolloutDecision::refused(target, PoolPhase::of(pool), hold), None)
    };
    if let Some(object) = context.caches.undecodable() {
        return refused(Hold::Undecodable(object.to_string()));
    }
    let built_images = match context.caches.machine_os_config_of(&name) {
        Some(_) => BuiltImages::Keep,
        None => BuiltImages::Replace,
    };
    let other = control_plane::other_pool(&context.caches, &name);
    let around = |view| PoolView { operator_node, built_images, ..view };
    let mut node_index = context.enqueuer.node_index();
    match choose(&mut node_index, pool, other.as_deref(), around) {
        Ok((view, plan)) => (RolloutDecision::of(&view, &plan), checked(&node_index, &view, plan)),
        Err(fault) => refused(Hold::BadLimit(fault)),
    }
}

/// Returns true if the plan starts a node that is in service.
pub(crate) fn disrupts(plan: &RolloutPlan) -> bool {
    plan.starts.len() > plan.repairs.len()
}

fn choose(
    node_index: &mut NodeIndex,
    pool: &MachineConfigPool,
    other: Option<&MachineConfigPool>,
    around: impl FnOnce(PoolView) -> PoolView,
) -> Result<(PoolView, RolloutPlan), BadLimit> {
    let view = around(view(node_index, pool)?);
    let other = other.map(|other| self::view(node_index, other)).transpose()?;
    let plan = node_index.choose(&view, other.as_ref());
    Ok((view, plan))
}

/// Returns the plan, unless it breaks one of the invariants of every roll-out.
fn checked(node_index: &NodeIndex, view: &PoolView, plan: RolloutPlan) -> Option<RolloutPlan> {
    let checked = check::rollout(&plan, view, node_index.pool_nodes(&view.name)?);
    match checked {
        Ok(()) => Some(plan),
        Err(violation) => {
            error!(pool = view.name, error = chain(&violation), %plan, "Rejected a roll-out plan");
            None
        }
    }
}

fn view(node_index: &NodeIndex, pool: &MachineConfigPool) -> Result<PoolView, BadLimit> {
    let fleet = node_index.pool_nodes(&pool.name_any());
    PoolView::of(pool, fleet.map(|fleet| fleet.counts().machines).unwrap_or_default())
}
