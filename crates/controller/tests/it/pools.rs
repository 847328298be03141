//! Tests of pools that change, of the control plane, and of the events about both.

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
    image::machine_os_config,
    server::{Server, on_both},
};

on_both! {
    an_invalid_max_unavailable_stops_the_pool_and_is_reported_on_its_nodes,
    nodes_follow_created_deleted_and_changed_pools,
    annotation_changes_of_a_master_are_published,
    masters_are_schedulable_if_the_scheduler_allows,
    a_pool_in_image_mode_starts_no_updates_until_it_leaves_it,
    a_pool_status_that_another_client_changed_is_written_again,
}

async fn wait_for_reason(fleet: &Fleet, node: &str, reason: &str) -> String {
    let find = |report: &MachineConfigNode| {
        let conditions = report.status.clone().unwrap_or_default().conditions;
        conditions.into_iter().find(|c| c.type_ == "Waiting" && c.reason == reason)
    };
    let what = format!("waits because of {reason}");
    let report = fleet.wait::<MachineConfigNode>(node, &what, |r| find(r).is_some()).await;
    find(&report).unwrap().message
}

async fn an_invalid_max_unavailable_stops_the_pool_and_is_reported_on_its_nodes(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    let limit = |limit: Value| json!({"spec": {"maxUnavailable": limit}});
    fleet.patch::<MachineConfigPool>("worker", limit(json!("many"))).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    for node in ["n0", "n1"] {
        let text = wait_for_reason(&fleet, node, "BadLimit").await;
        let expected = format!("Node waits for {new}: the pool's maxUnavailable: invalid value");
        assert!(text.starts_with(&expected), "{text}");
    }
    assert_eq!(fleet.under_way(&new).await, [""; 0]);
    fleet.patch::<MachineConfigPool>("worker", limit(json!(1))).await;
    let first = fleet.wait_for_start(&new).await;
    let other = if first == "n0" { "n1" } else { "n0" };
    wait_for_reason(&fleet, other, "NoCapacity").await;
    fleet.stop().await;
}

async fn nodes_follow_created_deleted_and_changed_pools(server: Server) {
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
async fn annotation_changes_of_a_master_are_published(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    fleet.create(&masters()).await;
    fleet.create(&master("m0")).await;
    let labelled = "node-role.kubernetes.io/control-plane";
    fleet.wait::<Node>("m0", "it has both labels", |n| n.labels().contains_key(labelled)).await;
    // Only nodes in the pool `master` cause events.
    fleet
        .wait::<MachineConfigPool>("master", "it has its node", |pool| {
            pool.status.as_ref().is_some_and(|status| status.machine_count == 1)
        })
        .await;
    fleet.write_daemon_state("m0", "Degraded", "", "disk full").await;
    let text = fleet.event("AnnotationChange").await;
    assert!(text.starts_with("Node m0 now has machineconfiguration.openshift.io/"), "{text}");
    fleet.stop().await;
}

// covers: NOD-31
async fn masters_are_schedulable_if_the_scheduler_allows(server: Server) {
    let mut fleet = Fleet::on(server, 0).await;
    // The kind must exist before the controller starts, as in every OpenShift cluster.
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
        // The real API server adds this taint to every new node.
        let known = ["UpdateInProgress", "node.kubernetes.io/not-ready"];
        let others = taints.filter(|taint| !known.contains(&taint.key.as_str()));
        others.map(|taint| taint.key.clone()).collect()
    };
    fleet.wait::<Node>("m0", "is schedulable", is_worker).await;
    schedulers.patch("cluster", &PatchParams::default(), &Patch::Merge(spec(false))).await.unwrap();
    let node = fleet.wait::<Node>("m0", "is not schedulable", |node| !is_worker(node)).await;
    assert_eq!(taints(&node), ["theirs", "node-role.kubernetes.io/master"]);
    schedulers.patch("cluster", &PatchParams::default(), &Patch::Merge(spec(true))).await.unwrap();
    let node = fleet.wait::<Node>("m0", "is schedulable again", is_worker).await;
    assert_eq!(taints(&node), ["theirs"]);
    schedulers.delete("cluster", &DeleteParams::default()).await.unwrap();
    fleet.wait::<Node>("m0", "is not schedulable by default", |node| !is_worker(node)).await;
    fleet.stop().await;
}

// covers: NOD-12, NOD-28
async fn a_pool_in_image_mode_starts_no_updates_until_it_leaves_it(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let old = fleet.rendered().await;
    let build = "machineconfiguration.openshift.io/current-machine-os-build";
    fleet.create(&machine_os_config(&json!({build: "worker-gone"}))).await;
    let is_cleared = |order: &MachineOSConfig| !order.annotations().contains_key(build);
    fleet.wait::<MachineOSConfig>("worker", "its stale build is cleared", is_cleared).await;
    let image = "registry.test/os@sha256:0";
    let annotations = json!({
        annotation::CURRENT_IMAGE.name(): image, annotation::DESIRED_IMAGE.name(): image,
    });
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": annotations}})).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    wait_for_reason(&fleet, "n0", "ImageMode").await;
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert_eq!(node.annotations().get(annotation::DESIRED_CONFIG.name()), Some(&old));

    fleet.all::<MachineOSConfig>().delete("worker", &DeleteParams::default()).await.unwrap();
    let is_plain = |node: &Node| {
        !node.annotations().contains_key(annotation::DESIRED_IMAGE.name())
            && node.annotations().get(annotation::DESIRED_CONFIG.name()) == Some(&new)
    };
    fleet.wait::<Node>("n0", "has the plain config as desired config", is_plain).await;
    fleet.stop().await;
}

/// After a restore of etcd, the status is that of the backup while nothing else changes.
async fn a_pool_status_that_another_client_changed_is_written_again(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let count = |count: i32| {
        move |pool: &MachineConfigPool| {
            pool.status.as_ref().is_some_and(|status| status.machine_count == count)
        }
    };
    fleet.wait::<MachineConfigPool>("worker", "two machines", count(2)).await;
    let pools: Api<MachineConfigPool> = Api::all(fleet.client.clone());
    let old = Patch::Merge(json!({"status": {"machineCount": 7}}));
    let changed = pools.patch_status("worker", &PatchParams::default(), &old).await.unwrap();
    assert!(count(7)(&changed));
    fleet.wait::<MachineConfigPool>("worker", "two machines again", count(2)).await;
    fleet.stop().await;
}
