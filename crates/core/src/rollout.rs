//! Chooses which nodes of a pool may start updating now.
//!
//! A node holds a slot while it is not ready, while it is in the middle of an update, and while it
//! has failed *this* target: a failure may clear by itself, and two nodes must not then go down
//! together. A node that failed another target holds none, so that a better config can save it.
//! Slots are what `maxUnavailable` grants; free ones go to nodes of the first zone by name, oldest
//! first, so that one wave does not reach into several zones.

mod limit;
mod plan;
mod view;

pub use self::{
    limit::{BadLimit, max_unavailable},
    plan::{Hold, RolloutPlan},
    view::{NodeView, Readiness},
};

/// A pool as far as its roll-out goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    /// Its name.
    pub name: String,
    /// The config its nodes are to run.
    pub target: String,
    /// Whether anything may start.
    pub phase: Phase,
    /// How many nodes may be out of service at a time; none if not positive.
    pub max_unavailable: i64,
    /// The node that the operator itself runs on, which goes last in the control plane.
    pub operator_node: Option<String>,
}

/// Whether a pool's nodes may be given a new config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// They may.
    Active,
    /// The administrator has put it on hold.
    Paused,
    /// The pool is going away.
    Deleting,
}

/// Picks nodes to retarget without ever exceeding the pool's `maxUnavailable`.
#[must_use]
pub fn select(pool: &PoolView, nodes: &[NodeView]) -> RolloutPlan {
    let (mut plan, candidates) = candidates(pool, nodes);
    let mut eligible = Vec::new();
    // Compat: with one candidate left there is nobody to go before it
    // (pkg/controller/node/node_controller.go, filterControlPlaneCandidateNodes).
    let may_start = plan.capacity > 0 && pool.phase == Phase::Active;
    let defer = may_start && pool.name == "master" && candidates.len() > 1;
    for node in candidates {
        if defer && pool.operator_node.as_ref() == Some(&node.name) {
            plan.hold(node, Hold::OperatorNode);
        } else {
            eligible.push(node);
        }
    }
    if plan.capacity < eligible.len() {
        // The sort is stable: nodes that nothing sets apart keep their order.
        eligible.sort_by(|left, right| left.update_order().cmp(&right.update_order()));
    }
    for node in eligible {
        match pool.phase {
            Phase::Paused => plan.hold(node, Hold::Paused),
            Phase::Deleting => plan.hold(node, Hold::Deleting),
            Phase::Active if plan.starts.len() < plan.capacity => plan.start(node),
            Phase::Active => plan.hold(node, Hold::NoCapacity),
        }
    }
    plan
}

/// The nodes that need the target and could take it, and a plan that knows how many may.
fn candidates<'a>(pool: &PoolView, nodes: &'a [NodeView]) -> (RolloutPlan, Vec<&'a NodeView>) {
    let count = |holds: fn(&NodeView) -> bool| {
        i64::try_from(nodes.iter().filter(|node| holds(node)).count()).unwrap_or(i64::MAX)
    };
    let unavailable = count(NodeView::is_unavailable);
    let failing = nodes.iter().filter(|node| node.is_at(&pool.target) && node.is_failing()).count();
    let failing = i64::try_from(failing).unwrap_or(i64::MAX);
    let free = pool.max_unavailable.saturating_sub(unavailable).saturating_sub(failing);
    let mut plan = RolloutPlan::toward(&pool.target, usize::try_from(free).unwrap_or(0));
    let mut candidates = Vec::new();
    for node in nodes.iter().filter(|node| !node.is_at(&pool.target)) {
        match &node.readiness {
            Readiness::Ready => candidates.push(node),
            Readiness::Not(why) => plan.hold(node, Hold::NotReady(why.clone())),
        }
    }
    (plan, candidates)
}

#[cfg(test)]
mod tests;
