//! Drains: pods, budgets, and the daemon's requests.

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    events::v1::Event,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use mco_api::annotation;
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
