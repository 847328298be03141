//! Plans the roll-out of one pool from the caches and the node index. Nothing here writes or waits.

use kube::ResourceExt as _;
use mco_api::MachineConfigPool;
use mco_cluster::report::chain;
use mco_core::{
    check,
    rollout::{BadLimit, Hold, Phase, PoolView, RolloutPlan, Verdict},
    roster::Roster,
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
) -> (Verdict, Option<RolloutPlan>) {
    let name = pool.name_any();
    let refused = |hold: Hold| {
        warn!(pool = name, why = %hold, "No node of the pool can start to update");
        let target = &pool.spec.configuration.rendered.name;
        (Verdict::refused(target, Phase::of(pool), hold), None)
    };
    if context.caches.machine_os_config_of(&name).is_some() {
        return refused(Hold::ImageMode);
    }
    let other = control_plane::other_pool(&context.caches, &name);
    let mut roster = context.enqueuer.roster();
    match choose(&mut roster, pool, other.as_deref(), operator_node) {
        Ok((view, plan)) => (Verdict::of(&view, &plan), checked(&roster, &view, plan)),
        Err(fault) => refused(Hold::BadLimit(fault)),
    }
}

/// Returns true if the plan starts a node that is in service.
pub(crate) fn disrupts(plan: &RolloutPlan) -> bool {
    plan.starts.len() > plan.repairs.len()
}

fn choose(
    roster: &mut Roster,
    pool: &MachineConfigPool,
    other: Option<&MachineConfigPool>,
    operator_node: Option<String>,
) -> Result<(PoolView, RolloutPlan), BadLimit> {
    let view = PoolView { operator_node, ..view(roster, pool)? };
    let other = other.map(|other| self::view(roster, other)).transpose()?;
    let plan = roster.choose(&view, other.as_ref());
    Ok((view, plan))
}

/// Returns the plan, unless it breaks one of the invariants of every roll-out.
fn checked(roster: &Roster, view: &PoolView, plan: RolloutPlan) -> Option<RolloutPlan> {
    let checked = check::rollout(&plan, view, roster.fleet(&view.name)?);
    match checked {
        Ok(()) => Some(plan),
        Err(violation) => {
            error!(pool = view.name, error = chain(&violation), %plan, "Rejected a roll-out plan");
            None
        }
    }
}

fn view(roster: &Roster, pool: &MachineConfigPool) -> Result<PoolView, BadLimit> {
    let fleet = roster.fleet(&pool.name_any());
    PoolView::of(pool, fleet.map(|fleet| fleet.tally().machines).unwrap_or_default())
}
