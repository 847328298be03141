//! Drains: pods, budgets, and the daemon's requests.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    events::v1::Event,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use mco_api::{
    MachineConfigNode,
    annotation::{self, DrainRecord},
};
use mco_controller::Metrics;
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::fleet::Fleet;

fn pod(name: &str, app: &str, owner: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": {"app": app},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": app,
                "uid": "1", "controller": true}],
        },
        "spec": {"nodeName": "n0", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

async fn ask(fleet: &Fleet, request: &str) {
    let annotations = json!({annotation::DESIRED_DRAIN.name(): request});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": annotations}})).await;
}

async fn answered(fleet: &Fleet, request: &str) -> Node {
    let answered = |node: &Node| {
        let answer = node.annotations().get(annotation::LAST_APPLIED_DRAIN.name());
        answer.map(String::as_str) == Some(request)
    };
    fleet.wait::<Node>("n0", "the request is answered", answered).await
}

fn cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

async fn pods(fleet: &Fleet) -> Vec<String> {
    let pods = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let mut names: Vec<_> = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    names
}

/// What was said with this reason.
async fn events(fleet: &Fleet, reason: &str) -> Vec<String> {
    let events = Api::<Event>::all(fleet.client.clone());
    let events = events.list(&ListParams::default()).await.unwrap();
    let said = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    said.filter_map(|event| event.note).collect()
}

// covers: DRN-1, DRN-2, DRN-4
#[tokio::test]
async fn a_node_is_cordoned_emptied_and_opened_again() {
    let fleet = Fleet::start(1).await;
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    for pod in [pod("web", "web", "ReplicaSet"), pod("agent", "agent", "DaemonSet")] {
        api.create(&PostParams::default(), &pod).await.unwrap();
    }
    ask(&fleet, "drain-rendered-worker-1").await;
    let node = answered(&fleet, "drain-rendered-worker-1").await;
    assert!(cordoned(&node));
    assert_eq!(pods(&fleet).await, ["agent"], "what a DaemonSet runs stays");

    ask(&fleet, "uncordon-rendered-worker-1").await;
    let node = answered(&fleet, "uncordon-rendered-worker-1").await;
    assert!(!cordoned(&node));
    fleet.stop().await;
}

// covers: DRN-5
#[tokio::test]
async fn a_budget_holds_a_drain_up_until_it_allows_the_eviction() {
    let fleet = Fleet::start(1).await;
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let web = pod("web", "web", "ReplicaSet");
    api.create(&PostParams::default(), &web).await.unwrap();
    // A pod that has not begun may always go, whatever its budget says.
    let runs = Patch::Merge(json!({"status": web.status}));
    api.patch_status("web", &PatchParams::default(), &runs).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .unwrap();
    let budgets = Api::<PodDisruptionBudget>::namespaced(fleet.client.clone(), "default");
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    ask(&fleet, "drain-rendered-worker-1").await;
    fleet.wait::<Node>("n0", "it is cordoned", cordoned).await;
    assert_eq!(pods(&fleet).await, ["web"]);
    assert_eq!(
        events(&fleet, "DrainBlocked").await,
        [
            "node n0: this drain cannot finish: pod default/web: PodDisruptionBudget default/web wants \
          1 of 1 pods and so allows no eviction ever; add a replica or lower the budget"
        ],
        "it was said before the node was cordoned"
    );
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert!(!node.annotations().contains_key(annotation::LAST_APPLIED_DRAIN.name()));

    budgets.delete("web", &DeleteParams::default()).await.unwrap();
    answered(&fleet, "drain-rendered-worker-1").await;
    assert_eq!(pods(&fleet).await, [""; 0]);
    fleet.stop().await;
}

/// The record on the node, once `holds`.
async fn record(fleet: &Fleet, what: &str, holds: impl Fn(&DrainRecord) -> bool) -> DrainRecord {
    let read = |node: &Node| annotation::DRAIN_RECORD.get(node.annotations()).unwrap();
    let found = |node: &Node| read(node).is_some_and(|record| holds(&record));
    let node = fleet.wait::<Node>("n0", what, found).await;
    read(&node).unwrap()
}

/// A pod of a `ReplicaSet` whose budget never lets it go.
async fn stuck(fleet: &Fleet) -> Api<PodDisruptionBudget> {
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let web = pod("web", "web", "ReplicaSet");
    api.create(&PostParams::default(), &web).await.unwrap();
    let runs = Patch::Merge(json!({"status": web.status}));
    api.patch_status("web", &PatchParams::default(), &runs).await.unwrap();
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .unwrap();
    let budgets = Api::<PodDisruptionBudget>::namespaced(fleet.client.clone(), "default");
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    budgets
}

// covers: DRN-10
#[tokio::test]
async fn a_drain_that_is_held_up_names_pod_owner_and_budget_and_since_when() {
    let fleet = Fleet::start(1).await;
    let budgets = stuck(&fleet).await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let record = record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    let [blocker] = record.blockers.as_slice() else { panic!("{record:?}") };
    assert_eq!((blocker.pod.as_str(), blocker.owner.as_str()), ("default/web", "ReplicaSet web"));
    assert!(
        blocker.why.starts_with("PodDisruptionBudget default/keep wants 1 of 1 pods"),
        "{blocker}"
    );
    let drained = |node: &MachineConfigNode, status: &str, text: &str| {
        let conditions = node.status.clone().unwrap_or_default().conditions;
        conditions
            .iter()
            .any(|c| c.type_ == "Drained" && c.status == status && c.message.contains(text))
    };
    let text = blocker.to_string();
    fleet
        .wait::<MachineConfigNode>("n0", "it says so", |node| drained(node, "Unknown", &text))
        .await;

    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    let node = answered(&fleet, "drain-rendered-worker-1").await;
    assert!(!node.annotations().contains_key(annotation::DRAIN_RECORD.name()));
    fleet
        .wait::<MachineConfigNode>("n0", "it says so", |node| drained(node, "True", "complete"))
        .await;
    ask(&fleet, "uncordon-rendered-worker-1").await;
    fleet
        .wait::<MachineConfigNode>("n0", "it is open", |node| {
            let conditions = node.status.clone().unwrap_or_default().conditions;
            conditions.iter().any(|c| c.type_ == "Uncordoned" && c.status == "True")
        })
        .await;
    fleet.stop().await;
}

// covers: DRN-6, DRN-7
#[tokio::test]
async fn a_controller_that_takes_over_knows_how_long_a_drain_has_been_going_on() {
    let mut fleet = Fleet::start(1).await;
    let budgets = stuck(&fleet).await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let mut known = record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    let mut registry = Registry::default();
    fleet.config.metrics = Metrics::register(&mut registry);
    fleet.config.pace.attempt = Duration::from_millis(50);
    let counted = |registry: &Registry| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text.contains("mcc_drain_err{node=\"n0\"} 1")
    };
    assert!(!counted(&registry));

    fleet.pause().await;
    known.since = serde_json::from_value(json!("2020-01-01T00:00:00Z")).unwrap();
    let old = json!({annotation::DRAIN_RECORD.name(): known.to_string()});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": old}})).await;
    fleet.resume();

    let text = fleet.event("DrainFailed").await;
    assert_eq!(text, "node n0: drain exceeded timeout: 1h0m0s. Will continue to retry.");
    let text = fleet.event("DrainThresholdExceeded").await;
    assert!(
        text.contains("pod default/web of ReplicaSet web: PodDisruptionBudget default/keep"),
        "{text}"
    );
    let after = record(&fleet, "the attempt has failed", |record| record.attempts > 0).await;
    assert_eq!((&after.since, &after.blockers), (&known.since, &known.blockers));
    assert!(counted(&registry));

    // Changed budgets do not wake a drain that pauses; opening the node does, and starts it anew.
    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    fleet.patch::<Node>("n0", json!({"spec": {"unschedulable": false}})).await;
    answered(&fleet, "drain-rendered-worker-1").await;
    assert!(!counted(&registry));
    fleet.stop().await;
}
