//! Gathers what a choice of nodes depends on and asks the core for it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use mco_api::{MachineConfigPool, annotation::Topology, label};
use mco_cluster::report::chain;
use mco_core::{
    check,
    rollout::{BadLimit, Hold, Phase, PoolView, RolloutPlan, Verdict},
    roster::Roster,
};
use tracing::{error, warn};

use crate::{Context, board};

/// The pool of the control plane.
pub(crate) const MASTER: &str = "master";

/// The pools that vote together where the control plane has an arbiter.
pub(crate) const CONTROL_PLANE: [&str; 2] = [MASTER, "arbiter"];

/// Who of the pool is told its config now; `None` if nobody can be.
///
/// What it means for the others is noted on the board.
pub(crate) async fn plan(context: &Context, pool: &MachineConfigPool) -> Option<RolloutPlan> {
    let name = pool.name_any();
    let other = neighbour(context, &name);
    let refused = |hold: Hold| {
        warn!(pool = name, why = %hold, "No node is updated");
        let target = &pool.spec.configuration.rendered.name;
        (Verdict::refused(target, Phase::of(pool), hold), None)
    };
    let choose = |operator: Option<String>| {
        if context.caches.order_of(&name).is_some() {
            return refused(Hold::ImageMode);
        }
        let mut roster = context.board.roster();
        match choose(&mut roster, pool, other.as_deref(), operator) {
            Ok((view, plan)) => (Verdict::of(&view, &plan), sound(&roster, &view, plan)),
            Err(fault) => refused(Hold::BadLimit(fault)),
        }
    };
    let (mut verdict, mut plan) = choose(None);
    let starts = |plan: &RolloutPlan| plan.starts.len() > plan.repairs.len();
    // Where its node is matters only when somebody in service is about to go.
    if name == MASTER && plan.as_ref().is_some_and(starts) {
        (verdict, plan) = choose(operator_node(context).await);
    }
    let is_new = context.board.roster().judge(&name, verdict);
    if is_new {
        context.board.judged(&name, context.settle.report);
    }
    plan
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

/// The plan, unless it breaks one of the rules that hold whatever was decided.
fn sound(roster: &Roster, view: &PoolView, plan: RolloutPlan) -> Option<RolloutPlan> {
    let checked = check::rollout(&plan, view, roster.fleet(&view.name)?);
    match checked {
        Ok(()) => Some(plan),
        Err(violation) => {
            error!(pool = view.name, error = chain(&violation), %plan, "The plan is not carried out");
            None
        }
    }
}

fn view(roster: &Roster, pool: &MachineConfigPool) -> Result<PoolView, BadLimit> {
    let fleet = roster.fleet(&pool.name_any());
    PoolView::of(pool, fleet.map(|fleet| fleet.tally().machines).unwrap_or_default())
}

/// The other half of a control plane with an arbiter.
fn neighbour(context: &Context, pool: &str) -> Option<Arc<MachineConfigPool>> {
    let other = CONTROL_PLANE.into_iter().find(|other| *other != pool)?;
    let config = context.caches.controller_config()?;
    let is_half = CONTROL_PLANE.contains(&pool);
    if !is_half || board::topology(&config) != Some(Topology::HighlyAvailableArbiter) {
        return None;
    }
    context.caches.pools.get(other)
}

/// The node that the operator runs on, if exactly one pod of it is there.
async fn operator_node(context: &Context) -> Option<String> {
    let api = Api::<Pod>::namespaced(context.client.clone(), label::NAMESPACE);
    let params = ListParams::default().labels("k8s-app=machine-config-operator");
    match api.list(&params).await {
        Ok(pods) => match pods.items.as_slice() {
            [pod] => pod.spec.as_ref()?.node_name.clone(),
            _ => None,
        },
        Err(error) => {
            warn!(
                error = chain(&error),
                "The operator's node is not known, so it is not kept last"
            );
            None
        }
    }
}
