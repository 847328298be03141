//! Pools that change, the control plane, and who is told of it.

use k8s_openapi::{
    api::core::v1::Node,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    runtime::wait::{Condition as _, conditions::is_crd_established},
};
use mco_api::{MachineConfigNode, MachineConfigPool, MachineOSConfig, annotation, label};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, is},
    image::order,
    server::{Server, on_both},
};

on_both! {
    a_limit_that_makes_no_sense_stops_the_pool_and_its_nodes_say_so,
    nodes_follow_pools_that_come_go_and_select_others,
    what_changes_about_a_master_is_told,
    masters_take_pods_where_the_cluster_says_so,
    a_pool_in_image_mode_is_left_alone_until_it_leaves_it,
}

async fn waits_because(fleet: &Fleet, node: &str, reason: &str) -> String {
    let find = |report: &MachineConfigNode| {
        let conditions = report.status.clone().unwrap_or_default().conditions;
        conditions.into_iter().find(|c| c.type_ == "Waiting" && c.reason == reason)
    };
    let what = format!("waits because of {reason}");
    let report = fleet.wait::<MachineConfigNode>(node, &what, |r| find(r).is_some()).await;
    find(&report).unwrap().message
}

async fn a_limit_that_makes_no_sense_stops_the_pool_and_its_nodes_say_so(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    let limit = |limit: Value| json!({"spec": {"maxUnavailable": limit}});
    fleet.patch::<MachineConfigPool>("worker", limit(json!("many"))).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    for node in ["n0", "n1"] {
        let text = waits_because(&fleet, node, "BadLimit").await;
        let expected = format!("Node waits for {new}: the pool's maxUnavailable: invalid value");
        assert!(text.starts_with(&expected), "{text}");
    }
    assert_eq!(fleet.under_way(&new).await, [""; 0]);
    fleet.patch::<MachineConfigPool>("worker", limit(json!(1))).await;
    let first = fleet.wait_for_start(&new).await;
    let other = if first == "n0" { "n1" } else { "n0" };
    waits_because(&fleet, other, "NoCapacity").await;
    fleet.stop().await;
}

async fn nodes_follow_pools_that_come_go_and_select_others(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let count = |count: i32| {
        move |pool: &MachineConfigPool| {
            pool.status.as_ref().is_some_and(|status| status.machine_count == count)
        }
    };
    fleet
        .patch::<Node>("n1", json!({"metadata": {"labels": {"tier": "gpu", "site": "east"}}}))
        .await;
    let pool = json!({
        "metadata": {"name": "gpu"},
        "spec": {
            "machineConfigSelector": {"matchLabels": {label::ROLE: "worker"}},
            "nodeSelector": {"matchLabels": {"tier": "gpu"}},
        },
    });
    fleet.create::<MachineConfigPool>(&serde_json::from_value(pool).unwrap()).await;
    fleet.wait("gpu", "it has the node", count(1)).await;
    fleet.wait("worker", "it has one node less", count(1)).await;
    let other = json!({"spec": {"nodeSelector": {"matchLabels": {"tier": "none"}}}});
    fleet.patch::<MachineConfigPool>("gpu", other).await;
    fleet.wait("gpu", "it selects others", count(0)).await;
    fleet.wait("worker", "it has the node back", count(2)).await;
    let back = json!({"spec": {"nodeSelector": {"matchLabels": {"tier": "gpu"}}}});
    fleet.patch::<MachineConfigPool>("gpu", back).await;
    fleet.wait("worker", "it has one node less again", count(1)).await;
    fleet.all::<MachineConfigPool>().delete("gpu", &DeleteParams::default()).await.unwrap();
    fleet.wait("worker", "it has the node for good", count(2)).await;
    fleet.all::<Node>().delete("n1", &DeleteParams::default()).await.unwrap();
    let status = fleet.wait_for_pool("it has one node", |s| s.machine_count == 1).await;
    assert!(is(&status, "Updated", "True"), "{status:#?}");
    fleet.stop().await;
}

fn master(name: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {"node-role.kubernetes.io/master": "", "kubernetes.io/os": "linux"},
            "annotations": {annotation::STATE.name(): "Done"},
        },
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

fn masters() -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": "master"},
        "spec": {
            "machineConfigSelector": {"matchLabels": {label::ROLE: "worker"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/master": ""}},
        },
    }))
    .unwrap()
}

// covers: NOD-32, NOD-34
async fn what_changes_about_a_master_is_told(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    fleet.create(&masters()).await;
    fleet.create(&master("m0")).await;
    let labelled = "node-role.kubernetes.io/control-plane";
    fleet.wait::<Node>("m0", "it has both labels", |n| n.labels().contains_key(labelled)).await;
    // Only what is known to be of the control plane is told of.
    fleet
        .wait::<MachineConfigPool>("master", "it has its node", |pool| {
            pool.status.as_ref().is_some_and(|status| status.machine_count == 1)
        })
        .await;
    fleet.daemon_says("m0", "Degraded", "", "disk full").await;
    let text = fleet.event("AnnotationChange").await;
    assert!(text.starts_with("Node m0 now has machineconfiguration.openshift.io/"), "{text}");
    fleet.stop().await;
}

// covers: NOD-31
async fn masters_take_pods_where_the_cluster_says_so(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    // The kind is there before the controller is, or it is not an OpenShift cluster.
    fleet.pause().await;
    let kind: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "schedulers.config.openshift.io"},
        "spec": {
            "group": "config.openshift.io", "scope": "Cluster",
            "names": {"kind": "Scheduler", "plural": "schedulers"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))
    .unwrap();
    fleet.create(&kind).await;
    fleet
        .wait::<CustomResourceDefinition>(&kind.name_any(), "it is served", |kind| {
            is_crd_established().matches_object(Some(kind))
        })
        .await;
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", "Scheduler");
    let kind = ApiResource::from_gvk(&kind);
    let schedulers = Api::<DynamicObject>::all_with(fleet.client.clone(), &kind);
    let spec = |schedulable: bool| json!({"spec": {"mastersSchedulable": schedulable}});
    let scheduler = DynamicObject::new("cluster", &kind).data(spec(true));
    schedulers.create(&PostParams::default(), &scheduler).await.unwrap();
    fleet.resume();
    fleet.create(&masters()).await;
    fleet.create(&master("m0")).await;
    let is_worker = |node: &Node| node.labels().contains_key("node-role.kubernetes.io/worker");
    let taints = |node: &Node| -> Vec<String> {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        // The real API server puts one on every new node.
        let known = ["UpdateInProgress", "node.kubernetes.io/not-ready"];
        let others = taints.filter(|taint| !known.contains(&taint.key.as_str()));
        others.map(|taint| taint.key.clone()).collect()
    };
    fleet.wait::<Node>("m0", "it takes pods", is_worker).await;
    schedulers.patch("cluster", &PatchParams::default(), &Patch::Merge(spec(false))).await.unwrap();
    let node = fleet.wait::<Node>("m0", "it takes none", |node| !is_worker(node)).await;
    assert_eq!(taints(&node), ["theirs", "node-role.kubernetes.io/master"]);
    schedulers.patch("cluster", &PatchParams::default(), &Patch::Merge(spec(true))).await.unwrap();
    let node = fleet.wait::<Node>("m0", "it takes pods again", is_worker).await;
    assert_eq!(taints(&node), ["theirs"]);
    schedulers.delete("cluster", &DeleteParams::default()).await.unwrap();
    fleet.wait::<Node>("m0", "it takes none by default", |node| !is_worker(node)).await;
    fleet.stop().await;
}

// covers: NOD-12, NOD-28
async fn a_pool_in_image_mode_is_left_alone_until_it_leaves_it(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let old = fleet.rendered().await;
    let build = "machineconfiguration.openshift.io/current-machine-os-build";
    fleet.create(&order(&json!({build: "worker-gone"}))).await;
    let is_cleared = |order: &MachineOSConfig| !order.annotations().contains_key(build);
    fleet.wait::<MachineOSConfig>("worker", "its stale build is forgotten", is_cleared).await;
    let image = "registry.test/os@sha256:0";
    let annotations = json!({
        annotation::CURRENT_IMAGE.name(): image, annotation::DESIRED_IMAGE.name(): image,
    });
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": annotations}})).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    waits_because(&fleet, "n0", "ImageMode").await;
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert_eq!(node.annotations().get(annotation::DESIRED_CONFIG.name()), Some(&old));

    fleet.all::<MachineOSConfig>().delete("worker", &DeleteParams::default()).await.unwrap();
    let is_plain = |node: &Node| {
        !node.annotations().contains_key(annotation::DESIRED_IMAGE.name())
            && node.annotations().get(annotation::DESIRED_CONFIG.name()) == Some(&new)
    };
    fleet.wait::<Node>("n0", "it is told to run the plain config", is_plain).await;
    fleet.stop().await;
}
