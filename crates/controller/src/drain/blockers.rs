//! Which pods hold a drain up: since when, what made them, and which budget is to blame.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{core::v1::Pod, policy::v1::PodDisruptionBudget},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use mco_api::annotation::{DrainBlocker, DrainRecord};
use mco_cluster::report::chain;
use mco_core::drain::{Fate, PodView, feasibility::feasibility};
use tracing::debug;

use super::evict::Refusals;
use crate::Context;

/// How many are written down; the others are counted.
const MOST: usize = 16;

/// Longest reason that is written down, in bytes.
const LONGEST: usize = 512;

/// What holds an attempt up whose time is over: refusals, and pods that do not go.
pub(super) fn all(pods: &[Arc<Pod>], refusals: Refusals) -> Refusals {
    let mut found = refusals;
    for pod in pods.iter().map(|pod| PodView::of(pod)) {
        let why = match pod.fate {
            Fate::Leaving => "is still terminating",
            Fate::Evict => "was evicted and is still there",
            Fate::Mirror | Fate::DaemonSet => continue,
        };
        found.entry(pod.to_string()).or_insert_with(|| why.to_owned());
    }
    found
}

/// Whether the record names other pods than those that hold the drain up now.
///
/// One that it names stays in it until it is gone.
pub(super) fn are_news(record: &DrainRecord, pods: &[Arc<Pod>], found: &Refusals) -> bool {
    let there: BTreeSet<String> = pods.iter().map(|pod| PodView::of(pod).to_string()).collect();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for blocker in &record.blockers {
        if !there.contains(&blocker.pod) {
            return true;
        }
        known.insert(&blocker.pod);
    }
    let unknown = found.keys().filter(|pod| !known.contains(pod.as_str())).count();
    // Those that are only counted are not told apart.
    unknown > 0 && (known.len() < MOST || unknown != record.more)
}

/// Writes what holds the drain up into the record.
pub(super) async fn record(
    context: &Context,
    record: &mut DrainRecord,
    node: &str,
    pods: &[Arc<Pod>],
    found: Refusals,
) {
    let now = Time(context.clock.now());
    let budgets = budgets(context, pods, &found).await;
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
        // Our own words name the budget; the server's stand in where we know of none.
        let why = causes.get(&name).or(why).map_or("is still there", String::as_str);
        blockers.push(DrainBlocker {
            owner: owner(pod),
            why: why.get(..why.floor_char_boundary(LONGEST)).unwrap_or_default().to_owned(),
            since: since.get(&name).cloned().unwrap_or_else(|| now.clone()),
            pod: name,
        });
    }
    // Those that have been there for longest come first.
    blockers.sort_by(|a, b| (&a.since, &a.pod).cmp(&(&b.since, &b.pod)));
    record.more = blockers.len().saturating_sub(MOST);
    blockers.truncate(MOST);
    record.blockers = blockers;
}

/// The budgets of the namespaces that refused pods are in; none where they cannot be listed.
async fn budgets(
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
            Err(error) => debug!(namespace, error = chain(&error), "Budgets are not named"),
        }
    }
    budgets
}

fn owner(pod: &Pod) -> String {
    let owners = pod.owner_references();
    let owner = owners.iter().find(|owner| owner.controller == Some(true));
    owner.map(|owner| format!("{} {}", owner.kind, owner.name)).unwrap_or_default()
}

/// What holds the drain up, in one line.
pub(super) fn text(record: &DrainRecord) -> String {
    let mut lines: Vec<String> = record.blockers.iter().map(ToString::to_string).collect();
    if record.more > 0 {
        lines.push(format!("and {} more pods", record.more));
    }
    lines.join("; ")
}
