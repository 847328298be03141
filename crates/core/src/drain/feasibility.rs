//! Prediction of whether a drain can finish, before anything is cordoned for it.
//!
//! A `PodDisruptionBudget` that allows no eviction even with every pod healthy blocks a drain for
//! ever. One that allows none at the moment only delays the drain. Pods without a controller and
//! data on the node do not delay a drain, but are lost, so they are reported too.
//!
//! Budgets are counted as Kubernetes counts them: from their status if it is up to date, otherwise
//! from the given pods.

use std::fmt;

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use mco_api::selector;
use serde::Serialize;

use super::{PodTreatment, PodView};

/// The predicted outcome of draining one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Feasibility {
    /// Pods to evict, in order.
    pub evict: Vec<String>,
    /// Obstacles that keep the drain from ever finishing.
    pub blockers: Vec<EvictionObstacle>,
    /// Obstacles that delay the drain.
    pub waits: Vec<EvictionObstacle>,
    /// Pods and data that the drain loses.
    pub losses: Vec<EvictionObstacle>,
}

/// A pod and the obstacle to its eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvictionObstacle {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Cause of the obstacle.
    pub cause: EvictionCause,
}

/// The cause of an obstacle to an eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EvictionCause {
    /// The budget never allows an eviction, because it requires all of its pods.
    NeverAllowed {
        /// Namespace and name of the budget.
        budget: String,
        /// Number of healthy pods that the budget requires.
        wanted: i64,
        /// Number of pods that the budget selects.
        pods: i64,
    },
    /// Several budgets select the pod, and Kubernetes evicts no such pod.
    SeveralBudgets(Vec<String>),
    /// The budget allows no eviction now, because too few of its pods are healthy.
    NotNow {
        /// Namespace and name of the budget.
        budget: String,
        /// Number of healthy pods that the budget requires.
        wanted: i64,
        /// Number of healthy pods.
        healthy: i64,
    },
    /// The pod is terminating already.
    Leaving,
    /// No controller recreates the pod.
    Bare,
    /// The pod keeps data on the node, in these volumes.
    LocalData(Vec<String>),
}

impl Feasibility {
    /// Returns true if the drain can finish without intervention.
    #[must_use]
    pub fn can_finish(&self) -> bool {
        self.blockers.is_empty()
    }
}

/// Predicts the drain of `node`, given all pods and budgets of the cluster.
#[must_use]
pub fn feasibility(node: &str, pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Feasibility {
    let budgets: Vec<BudgetCounts<'_>> =
        budgets.iter().map(|budget| BudgetCounts::of(budget, pods)).collect();
    let mut leaving: Vec<(&Pod, PodView)> = pods
        .iter()
        .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node)))
        .map(|pod| (pod, PodView::of(pod)))
        .filter(|(_, view)| view.blocks_drain())
        .collect();
    // Pods of low priority go first, so that important pods are away for the shortest time.
    leaving.sort_by_key(|(pod, view)| (priority(pod), view.to_string()));
    let mut found = Feasibility::default();
    for (pod, view) in leaving {
        let obstacle = |cause| EvictionObstacle { pod: view.to_string(), cause };
        if view.treatment == PodTreatment::Leaving {
            found.waits.push(obstacle(EvictionCause::Leaving));
            continue;
        }
        found.evict.push(view.to_string());
        match blocked_by(pod, &budgets) {
            Some(cause @ EvictionCause::NotNow { .. }) => found.waits.push(obstacle(cause)),
            Some(cause) => found.blockers.push(obstacle(cause)),
            None => {}
        }
        found.losses.extend(losses(pod).into_iter().map(obstacle));
    }
    found
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default()
}

/// A budget with the counts of the pods that it selects.
struct BudgetCounts<'a> {
    budget: &'a PodDisruptionBudget,
    pods: i64,
    healthy: i64,
    wanted: i64,
    allowed: i64,
}

impl<'a> BudgetCounts<'a> {
    fn of(budget: &'a PodDisruptionBudget, pods: &[Pod]) -> Self {
        if let Some(status) = budget.status.as_ref().filter(|_| is_counted(budget)) {
            let number = |count: Option<i32>| i64::from(count.unwrap_or_default());
            return Self {
                budget,
                pods: number(status.expected_pods),
                healthy: number(status.current_healthy),
                wanted: number(status.desired_healthy),
                allowed: number(status.disruptions_allowed),
            };
        }
        let counted = || pods.iter().filter(|pod| covers(budget, pod) && !is_over(pod));
        let all = i64::try_from(counted().count()).unwrap_or(i64::MAX);
        let healthy = counted().filter(|pod| is_healthy(pod)).count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let spec = budget.spec.as_ref();
        let wanted = match spec.map(|spec| (&spec.min_available, &spec.max_unavailable)) {
            Some((Some(least), _)) => count(least, all),
            Some((None, Some(most))) => all.saturating_sub(count(most, all)),
            Some((None, None)) | None => all.saturating_sub(1),
        };
        Self { budget, pods: all, healthy, wanted, allowed: healthy.saturating_sub(wanted).max(0) }
    }

    fn name(&self) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let metadata = &self.budget.metadata;
        format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
    }
}

/// Returns true if the status of the budget is up to date with its spec.
#[must_use]
pub fn is_counted(budget: &PodDisruptionBudget) -> bool {
    let status = budget.status.as_ref();
    status.is_some_and(|status| status.observed_generation == budget.metadata.generation)
}

fn blocked_by(pod: &Pod, budgets: &[BudgetCounts<'_>]) -> Option<EvictionCause> {
    let selecting: Vec<&BudgetCounts<'_>> =
        budgets.iter().filter(|counts| covers(counts.budget, pod)).collect();
    let counts = match selecting.as_slice() {
        // A finished or pending pod counts for no budget and may always be evicted.
        _ if is_over(pod) || is_pending(pod) => return None,
        [] => return None,
        [counts] => counts,
        several => {
            let names = several.iter().map(|counts| counts.name()).collect();
            return Some(EvictionCause::SeveralBudgets(names));
        }
    };
    let (budget, wanted) = (counts.name(), counts.wanted);
    if !is_healthy(pod) {
        // An unhealthy pod may be evicted if enough others are healthy, or if the budget says so.
        let policy = counts.budget.spec.as_ref();
        let policy = policy.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
        if policy == Some("AlwaysAllow") || (wanted > 0 && counts.healthy >= wanted) {
            return None;
        }
    }
    if counts.allowed > 0 {
        None
    } else if wanted >= counts.pods {
        Some(EvictionCause::NeverAllowed { budget, wanted, pods: counts.pods })
    } else {
        Some(EvictionCause::NotNow { budget, wanted, healthy: counts.healthy })
    }
}

fn losses(pod: &Pod) -> Vec<EvictionCause> {
    let mut losses = Vec::new();
    let mut owners = pod.metadata.owner_references.iter().flatten();
    if !is_over(pod) && !owners.any(|owner| owner.controller == Some(true)) {
        losses.push(EvictionCause::Bare);
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let local: Vec<String> = volumes
        // Data in memory is lost with the pod on any node.
        .filter(|volume| {
            volume.empty_dir.as_ref().is_some_and(|dir| dir.medium.as_deref() != Some("Memory"))
        })
        .map(|volume| volume.name.clone())
        .collect();
    if !local.is_empty() {
        losses.push(EvictionCause::LocalData(local));
    }
    losses
}

fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let selector: Option<&LabelSelector> =
        budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    budget.metadata.namespace == pod.metadata.namespace
        // An invalid selector selects no pod.
        && selector.is_some_and(|selector| selector::matches(selector, &labels).unwrap_or_default())
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref().and_then(|status| status.phase.as_deref())
}

fn is_over(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

fn is_pending(pod: &Pod) -> bool {
    phase(pod) == Some("Pending")
}

fn is_healthy(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    pod.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
}

/// Evaluates a number, or a percentage of `all` rounded up.
fn count(value: &IntOrString, all: i64) -> i64 {
    match value {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok());
            let share = percent.unwrap_or_default().saturating_mul(all);
            share.saturating_add(99).div_euclid(100)
        }
    }
}

impl fmt::Display for EvictionObstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}: {}", self.pod, self.cause)
    }
}

impl fmt::Display for EvictionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverAllowed { budget, wanted, pods } => write!(
                f,
                "PodDisruptionBudget {budget} requires {wanted} of {pods} pods and never allows an \
                eviction; add a replica or lower the budget"
            ),
            Self::SeveralBudgets(budgets) => write!(
                f,
                "PodDisruptionBudgets {} select the pod, and Kubernetes evicts no pod that more than \
                one selects; change their selectors so that one remains",
                budgets.join(" and ")
            ),
            Self::NotNow { budget, wanted, healthy } => write!(
                f,
                "PodDisruptionBudget {budget} requires {wanted} healthy pods and has {healthy}; the \
                drain waits until more are ready"
            ),
            Self::Leaving => f.write_str("terminating; the drain waits for it"),
            Self::Bare => f.write_str("no controller recreates it after the eviction"),
            Self::LocalData(volumes) => {
                write!(f, "loses the data in its volumes on the node: {}", volumes.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
