//! Tests of what the controller says about objects and states that it does not handle: unused
//! kinds, a node in two custom pools, a build skew, and a pod that was replaced by another one.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use mco_api::{ControllerConfig, MachineConfigPool, annotation, label};
use mco_cluster::Shutdown;
use mco_testkit::objects;
use serde_json::json;

use crate::{
    drain::{answered, ask},
    fleet::{Fleet, is},
    server::{Server, on_both},
};

on_both! {
    a_node_in_two_custom_pools_is_reported,
    a_build_skew_does_not_degrade_a_pool,
    an_eviction_spares_a_pod_that_replaced_another_one,
}

// covers: C130
async fn a_node_in_two_custom_pools_is_reported(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    for role in ["gpu", "infra"] {
        fleet.create(&objects::pool(role)).await;
    }
    let labels = json!({"node-role.kubernetes.io/gpu": "", "node-role.kubernetes.io/infra": ""});
    fleet.patch::<Node>("n0", json!({"metadata": {"labels": labels}})).await;
    let text = fleet.event("NodeHasNoPool").await;
    assert_eq!(text, "node n0 belongs to 2 custom roles, cannot proceed with this Node");
    fleet.stop().await;
}

async fn a_build_skew_does_not_degrade_a_pool(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let before = fleet.rendered().await;
    let by = |version: &str| json!({"metadata": {"annotations": {annotation::GENERATED_BY_VERSION.name(): version}}});
    let config = fleet.all::<ControllerConfig>().get(label::CONTROLLER_CONFIG).await.unwrap();
    let mine = config.annotations().get(annotation::GENERATED_BY_VERSION.name()).unwrap().clone();
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, by("other")).await;
    fleet.apply_config("50-more", "/etc/more").await;
    let status = fleet
        .wait_for_pool("it waits for the upgrade", |status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|c| c.kind == "RenderDegraded" && c.reason == "BuildSkew")
        })
        .await;
    assert!(is(&status, "RenderDegraded", "False") && is(&status, "Degraded", "False"));
    assert_eq!(fleet.rendered().await, before);
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, by(&mine)).await;
    fleet.rendered_anew(&before).await;
    let is_clear = |pool: &MachineConfigPool| {
        let status = pool.status.clone().unwrap_or_default();
        status.conditions.iter().all(|condition| condition.reason != "BuildSkew")
    };
    fleet.wait("worker", "the skew is over", is_clear).await;
    fleet.stop().await;
}

// covers: DRN-5
async fn an_eviction_spares_a_pod_that_replaced_another_one(server: Server) {
    let mut fleet = Fleet::on(server, 2).await;
    let pods = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let web = |node: &str| -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web"},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap()
    };
    pods.create(&PostParams::default(), &web("n0")).await.unwrap();
    fleet.pause().await;
    // Before the eviction arrives, a pod of the same name replaces the pod, on another node.
    let (api, other) = (pods.clone(), web("n1"));
    let client = fleet.server.gated(move |request| {
        let (api, other) = (api.clone(), other.clone());
        async move {
            if request.uri().path().ends_with("/eviction") {
                api.delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
                api.create(&PostParams::default(), &other).await.unwrap();
            }
            request
        }
    });
    let client = client.await;
    let shutdown = Shutdown::new();
    let running = tokio::spawn(mco_controller::run(fleet.config.clone(), client, shutdown.clone()));
    ask(&fleet, "drain-rendered-worker-1").await;
    answered(&fleet, "drain-rendered-worker-1").await;
    let left = pods.get("web").await.expect("the pod that replaced the other one stays");
    assert_eq!(left.spec.unwrap().node_name.as_deref(), Some("n1"));
    shutdown.request();
    running.await.unwrap();
}
