//! Whether a drain can finish, before anything is cordoned for it.
//!
//! A budget that allows no eviction even with every pod healthy holds a drain up for ever: that is a
//! blocker. One that allows none at the moment only makes it wait. Pods that come back nowhere and
//! data that goes with its pod hold nothing up, but somebody may want to know beforehand.
//!
//! Budgets are counted as Kubernetes counts them: from their status where it is up to date, else from
//! the pods given.

use std::fmt;

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use mco_api::selector;
use serde::Serialize;

use super::{Fate, PodView};

/// What a drain of one node comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Feasibility {
    /// The pods that leave, in the order in which they are asked to.
    pub evict: Vec<String>,
    /// What keeps the drain from ever finishing.
    pub blockers: Vec<Obstacle>,
    /// What makes it wait.
    pub waits: Vec<Obstacle>,
    /// What is lost on the way.
    pub losses: Vec<Obstacle>,
}

/// A pod, and what is the matter with its eviction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Obstacle {
    /// The pod, with its namespace.
    pub pod: String,
    /// What is the matter.
    pub cause: Cause,
}

/// What is the matter with the eviction of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// The budget never allows an eviction: it wants this many of this many pods.
    NeverAllowed {
        /// The budget.
        budget: String,
        /// How many healthy pods it wants.
        wanted: i64,
        /// How many pods it is about.
        pods: i64,
    },
    /// Kubernetes evicts no pod that several budgets are about.
    SeveralBudgets(Vec<String>),
    /// The budget allows no eviction now, because too few of its pods are healthy.
    NotNow {
        /// The budget.
        budget: String,
        /// How many healthy pods it wants.
        wanted: i64,
        /// How many there are.
        healthy: i64,
    },
    /// The pod is on its way out already.
    Leaving,
    /// Nothing makes the pod anew.
    Bare,
    /// The pod keeps data on the node, in these volumes.
    LocalData(Vec<String>),
}

impl Feasibility {
    /// Whether the drain can finish without anybody's help.
    #[must_use]
    pub fn can_finish(&self) -> bool {
        self.blockers.is_empty()
    }
}

/// What a drain of `node` comes to, given all pods and budgets of the cluster.
#[must_use]
pub fn feasibility(node: &str, pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Feasibility {
    let standings: Vec<Standing<'_>> =
        budgets.iter().map(|budget| Standing::of(budget, pods)).collect();
    let mut leaving: Vec<(&Pod, PodView)> = pods
        .iter()
        .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node)))
        .map(|pod| (pod, PodView::of(pod)))
        .filter(|(_, view)| view.is_in_the_way())
        .collect();
    // The less a pod matters, the sooner it goes, so that what matters is away for the shortest time.
    leaving.sort_by_key(|(pod, view)| (priority(pod), view.to_string()));
    let mut found = Feasibility::default();
    for (pod, view) in leaving {
        let obstacle = |cause| Obstacle { pod: view.to_string(), cause };
        if view.fate == Fate::Leaving {
            found.waits.push(obstacle(Cause::Leaving));
            continue;
        }
        found.evict.push(view.to_string());
        match held_by(pod, &standings) {
            Some(cause @ Cause::NotNow { .. }) => found.waits.push(obstacle(cause)),
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

/// A budget and the pods it is about.
struct Standing<'a> {
    budget: &'a PodDisruptionBudget,
    pods: i64,
    healthy: i64,
    wanted: i64,
    allowed: i64,
}

impl<'a> Standing<'a> {
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

/// Whether Kubernetes has counted the budget's pods since the budget was last changed.
#[must_use]
pub fn is_counted(budget: &PodDisruptionBudget) -> bool {
    let status = budget.status.as_ref();
    status.is_some_and(|status| status.observed_generation == budget.metadata.generation)
}

fn held_by(pod: &Pod, standings: &[Standing<'_>]) -> Option<Cause> {
    let about: Vec<&Standing<'_>> =
        standings.iter().filter(|standing| covers(standing.budget, pod)).collect();
    let standing = match about.as_slice() {
        // A pod that is over, or has not begun, counts for no budget and may always go.
        _ if is_over(pod) || is_pending(pod) => return None,
        [] => return None,
        [standing] => standing,
        several => {
            let names = several.iter().map(|standing| standing.name()).collect();
            return Some(Cause::SeveralBudgets(names));
        }
    };
    let (budget, wanted) = (standing.name(), standing.wanted);
    if !is_healthy(pod) {
        // An unhealthy pod may go where the others make up for it, or where the budget says so.
        let policy = standing.budget.spec.as_ref();
        let policy = policy.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
        if policy == Some("AlwaysAllow") || (wanted > 0 && standing.healthy >= wanted) {
            return None;
        }
    }
    if standing.allowed > 0 {
        None
    } else if wanted >= standing.pods {
        Some(Cause::NeverAllowed { budget, wanted, pods: standing.pods })
    } else {
        Some(Cause::NotNow { budget, wanted, healthy: standing.healthy })
    }
}

fn losses(pod: &Pod) -> Vec<Cause> {
    let mut losses = Vec::new();
    let mut owners = pod.metadata.owner_references.iter().flatten();
    if !is_over(pod) && !owners.any(|owner| owner.controller == Some(true)) {
        losses.push(Cause::Bare);
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let local: Vec<String> = volumes
        // Memory is gone with the pod wherever it ran.
        .filter(|volume| {
            volume.empty_dir.as_ref().is_some_and(|dir| dir.medium.as_deref() != Some("Memory"))
        })
        .map(|volume| volume.name.clone())
        .collect();
    if !local.is_empty() {
        losses.push(Cause::LocalData(local));
    }
    losses
}

fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let selector: Option<&LabelSelector> =
        budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    budget.metadata.namespace == pod.metadata.namespace
        // One that cannot be read is about no pod.
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

/// A number, or a share of `all`, rounded up.
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

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}: {}", self.pod, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverAllowed { budget, wanted, pods } => write!(
                f,
                "PodDisruptionBudget {budget} wants {wanted} of {pods} pods and so allows no \
                 eviction ever; add a replica or lower the budget"
            ),
            Self::SeveralBudgets(budgets) => write!(
                f,
                "PodDisruptionBudgets {} are about it, and Kubernetes evicts no pod with more \
                 than one; leave it one",
                budgets.join(" and ")
            ),
            Self::NotNow { budget, wanted, healthy } => write!(
                f,
                "PodDisruptionBudget {budget} wants {wanted} healthy pods and has {healthy}; the \
                 drain waits until more are ready"
            ),
            Self::Leaving => f.write_str("is on its way out; the drain waits for it"),
            Self::Bare => f.write_str("nothing makes it anew once it is evicted"),
            Self::LocalData(volumes) => {
                write!(f, "loses the data in its volumes on the node: {}", volumes.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
