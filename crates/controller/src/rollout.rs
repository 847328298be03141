//! Gathers what a choice of nodes depends on and asks the core for it.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _, api::ListParams};
use mco_api::{MachineConfigPool, annotation::Topology, label};
use mco_cluster::report::chain;
use mco_core::rollout::{self, BadLimit, Fleet, Neighbour, Phase, PoolView, RolloutPlan};
use tracing::warn;

use crate::{Context, node::members};

/// The pools that vote together where the control plane has an arbiter.
pub(crate) const CONTROL_PLANE: [&str; 2] = ["master", "arbiter"];

/// Who of the pool is told its config now, and why the others wait.
pub(crate) async fn plan(
    context: &Context,
    pool: &MachineConfigPool,
) -> Result<RolloutPlan, BadLimit> {
    let (view, mut fleet) = observe(context, pool)?;
    let operator_node = match view.name.as_str() {
        "master" => operator_node(context).await,
        _ => None,
    };
    let view = PoolView { operator_node, ..view };
    let mut plan = match neighbour(context, &view.name) {
        None => fleet.choose(&view),
        Some(other) => {
            let (other, mut others) = observe(context, &other)?;
            if view.name == "master" {
                rollout::choose_control_plane((&view, &mut fleet), (&other, &mut others)).0
            } else {
                rollout::choose_control_plane((&other, &mut others), (&view, &mut fleet)).1
            }
        }
    };
    plan.holds = fleet.holds(&view, &plan);
    Ok(plan)
}

fn observe(context: &Context, pool: &MachineConfigPool) -> Result<(PoolView, Fleet), BadLimit> {
    let name = pool.name_any();
    let nodes = members(context, &name);
    let limit = pool.spec.max_unavailable.as_ref();
    let view = PoolView {
        max_unavailable: rollout::max_unavailable(&name, limit, nodes.len())?,
        name,
        target: pool.spec.configuration.rendered.name.clone(),
        phase: phase(pool),
        operator_node: None,
        neighbour: Neighbour::default(),
    };
    let mut fleet = Fleet::toward(&view.target);
    for node in nodes {
        fleet.set(node);
    }
    Ok((view, fleet))
}

fn phase(pool: &MachineConfigPool) -> Phase {
    if pool.metadata.deletion_timestamp.is_some() {
        Phase::Deleting
    } else if pool.spec.paused {
        Phase::Paused
    } else {
        Phase::Active
    }
}

/// The other half of a control plane with an arbiter.
fn neighbour(context: &Context, pool: &str) -> Option<std::sync::Arc<MachineConfigPool>> {
    let [master, arbiter] = CONTROL_PLANE;
    let other = match pool {
        name if name == master => arbiter,
        name if name == arbiter => master,
        _ => return None,
    };
    let config = context.caches.controller_config()?;
    let topology = config.spec.infra.as_ref()?.status.as_ref()?.control_plane_topology.as_ref();
    if topology != Some(&Topology::HighlyAvailableArbiter) {
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
