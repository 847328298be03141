//! Pods that block a drain: since when, their owner, and the `PodDisruptionBudget` that protects
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{ResourceExt as _, api::ListParams};
use mco_api::annotation::{DrainBlocker, DrainRecord};
use mco_cluster::{Api, report::chain};
use mco_core::drain::{PodTreatment, PodView, feasibility::feasibility};
use tracing::debug;

use super::evict::Refusals;
use crate::Context;

/// Maximum number of pods in the record; further ones are counted.
const MAX_BLOCKERS: usize = 16;

/// Maximum length of a recorded reason, in bytes.
const MAX_REASON_BYTES: usize = 512;

/// Returns the pods that block an attempt that timed out: refused evictions, and pods that are
/// still present.
pub(super) fn of_timed_out_attempt(pods: &[Arc<Pod>], refusals: Refusals) -> Refusals {
    let mut found = refusals;
    for pod in pods.iter().map(|pod| PodView::of(pod)) {
        let why = match pod.treatment {
            PodTreatment::Leaving => "is still terminating",
            PodTreatment::Evict => "was evicted and is still there",
            PodTreatment::Mirror | PodTreatment::DaemonSet => continue,
        };
        found.entry(pod.to_string()).or_insert_with(|| why.to_owned());
    }
    found
}

/// Returns true if other pods block the drain now than the record names.
///
/// A recorded pod stays in the record until it is gone.
pub(super) fn have_changed(record: &DrainRecord, pods: &[Arc<Pod>], found: &Refusals) -> bool {
    let there: BTreeSet<String> = pods.iter().map(|pod| PodView::of(pod).to_string()).collect();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for blocker in &record.blockers {
        if !there.contains(&blocker.pod) {
            return true;
        }
        known.insert(&blocker.pod);
    }
    let unknown = found.keys().filter(|pod| !known.contains(pod.as_str())).count();
    // Pods that are only counted cannot be compared.
    unknown > 0 && (known.len() < MAX_BLOCKERS || unknown != record.more)
}

/// Updates the blockers in the record.
pub(super) async fn update_record(
    context: &Context,
    record: &mut DrainRecord,
    node: &str,
    pods: &[Arc<Pod>],
    found: Refusals,
) {
    let now = Time(context.clock.now());
    let budgets = list_budgets(context, pods, &found).await;
    let here: Vec<Pod> = pods.iter().map(|pod| Pod::clone(pod)).collect();
    let causes = feasibility(node, &here, &budgets);
    let causes: BTreeMap<String, String> = causes
        .blockers
        .into_iter()
        .chain(causes.waits)
        .map(|obstacle| (obstacle.pod, obstacle.cause.to_string()))
        .collect();
    let since: BTreeMap<String, Time> =
        record.blockers.drain(..).map(|blocker| (blocker.pod, blocker.since)).collect();
    let mut blockers = Vec::new();
    for pod in pods {
        let name = PodView::of(pod).to_string();
        let why = found.get(&name);
        if why.is_none() && !since.contains_key(&name) {
            continue;
        }
        // The cause found by `mco_core` names the budget; otherwise the API server's message is
        // used.
        let why = causes.get(&name).or(why).map_or("is still there", String::as_str);
        blockers.push(DrainBlocker {
            owner: owner(pod),
            why: why
                .get(..why.floor_char_boundary(MAX_REASON_BYTES))
                .unwrap_or_default()
                .to_owned(),
            since: since.get(&name).cloned().unwrap_or_else(|| now.clone()),
            pod: name,
        });
    }
    // Longest blocking first.
    blockers.sort_by(|a, b| (&a.since, &a.pod).cmp(&(&b.since, &b.pod)));
    record.more = blockers.len().saturating_sub(MAX_BLOCKERS);
    blockers.truncate(MAX_BLOCKERS);
    record.blockers = blockers;
}

/// Lists the `PodDisruptionBudgets` in the namespaces of the refused pods; none where listing
/// fails.
async fn list_budgets(
    context: &Context,
    pods: &[Arc<Pod>],
    found: &Refusals,
) -> Vec<PodDisruptionBudget> {
    let views = pods.iter().map(|pod| PodView::of(pod));
    let refused = views.filter(|pod| found.contains_key(&pod.to_string()));
    let namespaces: BTreeSet<String> = refused.map(|pod| pod.namespace).collect();
    let mut budgets = Vec::new();
    for namespace in namespaces {
        let api = Api::<PodDisruptionBudget>::namespaced(context.client.clone(), &namespace);
        match api.list(&ListParams::default()).await {
            Ok(found) => budgets.extend(found.items),
            Err(error) => {
                debug!(namespace, error = chain(&error), "Failed to list PodDisruptionBudgets");
            }
        }
    }
    budgets
}

fn owner(pod: &Pod) -> String {
    let owners = pod.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
    owner.map(|owner| format!("{} {}", owner.kind, owner.name)).unwrap_or_default()
}

/// Returns the blockers of a drain as one line of text.
pub(super) fn describe(record: &DrainRecord) -> String {
    let mut lines: Vec<String> = record.blockers.iter().map(ToString::to_string).collect();
    if record.more > 0 {
        lines.push(format!("and {} more pods", record.more));
    }
    lines.join("; ")
}
