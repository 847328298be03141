//! Disruption budgets of the simulator: the pods, and how many of them must stay available.

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::util::intstr::IntOrString,
};
use mco_api::selector;
use mco_sim::Budget;

/// Returns every budget that selects pods of the input.
pub(super) fn budgets(pods: &[Pod], budgets: &[PodDisruptionBudget]) -> Vec<Budget> {
    budgets
        .iter()
        .map(|budget| read(pods, budget))
        .filter(|budget| !budget.pods.is_empty())
        .collect()
}

fn read(pods: &[Pod], budget: &PodDisruptionBudget) -> Budget {
    let namespace = budget.metadata.namespace.as_deref();
    let spec = budget.spec.clone().unwrap_or_default();
    let selected = |pod: &Pod| {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let selector = spec.selector.as_ref();
        pod.metadata.namespace.as_deref() == namespace
            && selector
                .is_some_and(|selector| selector::matches(selector, &labels).unwrap_or(false))
    };
    let members: Vec<usize> =
        pods.iter().enumerate().filter(|(_, pod)| selected(pod)).map(|(index, _)| index).collect();
    let all = members.len();
    let min_available = match (&spec.min_available, &spec.max_unavailable) {
        (Some(min), _) => share(min, all),
        (None, Some(max)) => all.saturating_sub(share(max, all)),
        (None, None) => 0,
    };
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    Budget {
        name: format!("{}/{name}", namespace.unwrap_or_default()),
        pods: members,
        min_available,
    }
}

/// Returns a number of pods; a percentage is rounded up, as in Kubernetes.
fn share(limit: &IntOrString, all: usize) -> usize {
    match limit {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or_default(),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or_default();
            all.saturating_mul(percent).div_ceil(100)
        }
    }
}
