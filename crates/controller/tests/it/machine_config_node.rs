//! Tests of `MachineConfigNodes`, and of taints, labels and the topology annotation of nodes.

use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::{ControllerConfig, MachineConfigNode, MachineConfigPool, annotation, label};
use serde_json::json;

use crate::{
    fleet::{Fleet, INFRA, worker},
    server::{Server, on_both},
};

on_both! {
    every_node_has_a_machine_config_node_until_it_is_deleted,
    the_machine_config_node_of_a_waiting_node_has_the_reason,
    waiting_nodes_are_tainted_until_they_start,
    nodes_have_the_control_plane_topology,
    a_node_that_booted_for_a_custom_pool_gets_its_labels_once,
}

/// Waits until the node's condition has this status and reason; returns its message.
async fn said(fleet: &Fleet, node: &str, kind: &str, status: &str, reason: &str) -> String {
    let find = |report: &MachineConfigNode| {
        let conditions = report.status.clone().unwrap_or_default().conditions;
        conditions.into_iter().find(|c| c.type_ == kind && c.status == status && c.reason == reason)
    };
    let what = format!("{kind}={status} because of {reason}");
    let report = fleet.wait::<MachineConfigNode>(node, &what, |r| find(r).is_some()).await;
    find(&report).unwrap().message
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints
        .into_iter()
        .any(|taint| taint.key == "UpdateInProgress" && taint.effect == "PreferNoSchedule")
}

// covers: O19, NOD-11
async fn every_node_has_a_machine_config_node_until_it_is_deleted(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    let is_set = |report: &MachineConfigNode| report.spec.config_version.desired == old;
    let report = fleet.wait::<MachineConfigNode>("n0", "it is there", is_set).await;
    assert_eq!((report.spec.node.name.as_str(), report.spec.pool.name.as_str()), ("n0", "worker"));
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert_eq!(Some(report.owner_references()[0].uid.clone()), node.uid());

    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    let node = fleet.wait_for_start(&new).await;
    fleet.wait_for_machine_config_node(&node, &new).await;

    fleet.all::<Node>().delete("n1", &DeleteParams::default()).await.unwrap();
    fleet.gone::<MachineConfigNode>("n1").await;
    // An object without an owner is deleted as well, and a deleted one is created again.
    let orphan = json!({"metadata": {"name": "x"}, "spec": {"node": {"name": "x"},
        "pool": {"name": "worker"}, "configVersion": {"desired": old}}});
    fleet.create::<MachineConfigNode>(&serde_json::from_value(orphan).unwrap()).await;
    fleet.gone::<MachineConfigNode>("x").await;
    let before = fleet.all::<MachineConfigNode>().get("n0").await.unwrap();
    fleet.all::<MachineConfigNode>().delete("n0", &DeleteParams::default()).await.unwrap();
    fleet
        .wait::<MachineConfigNode>("n0", "exists again", |report| report.uid() != before.uid())
        .await;
    fleet.stop().await;
}

async fn the_machine_config_node_of_a_waiting_node_has_the_reason(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    fleet.patch::<MachineConfigPool>("worker", json!({"spec": {"paused": true}})).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    for node in ["n0", "n1"] {
        let text = said(&fleet, node, "Waiting", "True", "PoolPaused").await;
        assert_eq!(text, format!("Node waits for {new}: the pool is paused"));
    }
    fleet.patch::<MachineConfigPool>("worker", json!({"spec": {"paused": false}})).await;
    let first = fleet.wait_for_start(&new).await;
    let other = if first == "n0" { "n1" } else { "n0" };
    said(&fleet, other, "Waiting", "True", "NoCapacity").await;
    said(&fleet, &first, "Waiting", "False", "AsExpected").await;
    fleet.write_daemon_state(&first, "Done", &new, "").await;
    said(&fleet, other, "Waiting", "False", "AsExpected").await;
    // The controller's conditions are not mistaken for the daemon's.
    fleet.write_daemon_state(other, "Degraded", &old, "disk full").await;
    let status = fleet.wait_for_pool("it is degraded", |s| crate::fleet::is(s, "Degraded", "True"));
    let status = status.await;
    let condition = status.conditions.iter().find(|c| c.kind == "NodeDegraded").unwrap();
    assert_eq!(condition.message, format!("Node {other} is reporting: \"disk full\""));
    fleet.stop().await;
}

// covers: NOD-15
async fn waiting_nodes_are_tainted_until_they_start(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    let theirs = json!({"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}});
    fleet.patch::<Node>("n1", theirs).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    let first = fleet.wait_for_start(&new).await;
    let other = if first == "n0" { "n1" } else { "n0" };
    fleet.wait::<Node>(other, "it is tainted", is_tainted).await;
    fleet.wait::<Node>(&first, "it is not tainted", |node| !is_tainted(node)).await;
    fleet.write_daemon_state(&first, "Done", &new, "").await;
    fleet.wait::<Node>(other, "it is no longer tainted", |node| !is_tainted(node)).await;
    let node = fleet.all::<Node>().get("n1").await.unwrap();
    let taints = node.spec.unwrap().taints.unwrap_or_default();
    assert!(taints.iter().any(|taint| taint.key == "theirs"), "{taints:?}");
    fleet.stop().await;
}

// covers: NOD-16
async fn nodes_have_the_control_plane_topology(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let topology = json!({"spec": {"infra": {
        "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
        "spec": {}, "status": {"controlPlaneTopology": "SingleReplica"},
    }}});
    fleet.patch::<ControllerConfig>(label::CONTROLLER_CONFIG, topology).await;
    let key = annotation::CONTROL_PLANE_TOPOLOGY.name();
    let is_said = |node: &Node| node.annotations().get(key).is_some_and(|s| s == "SingleReplica");
    fleet.wait::<Node>("n0", "the condition is set", is_said).await;
    fleet.stop().await;
}

// covers: NOD-17
async fn a_node_that_booted_for_a_custom_pool_gets_its_labels_once(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let config = fleet.infra_pool().await;
    let mut new = worker("new", &config);
    let booted = annotation::FIRST_PIVOT_CONFIG.name().to_owned();
    new.annotations_mut().insert(booted, config.clone());
    fleet.create(&new).await;
    let marker = annotation::CUSTOM_POOL_LABELS_APPLIED.name();
    let labelled = fleet
        .wait::<Node>("new", "it has the label", |node| node.labels().contains_key(INFRA))
        .await;
    assert!(labelled.annotations().contains_key(marker));
    assert_eq!(labelled.annotations().get(annotation::DESIRED_CONFIG.name()), Some(&config));
    fleet
        .wait::<MachineConfigNode>("new", "it is of its pool", |r| r.spec.pool.name == "infra")
        .await;
    // The label is not set again after the user removed it.
    let off = json!({"metadata": {"labels": {INFRA: null}}});
    fleet.patch::<Node>("new", off).await;
    fleet
        .wait::<MachineConfigNode>("new", "it is a worker's", |r| r.spec.pool.name == "worker")
        .await;
    let worker = fleet.rendered().await;
    fleet
        .wait::<Node>("new", "has the desired config of workers", |node| {
            node.annotations().get(annotation::DESIRED_CONFIG.name()) == Some(&worker)
        })
        .await;
    fleet.stop().await;
}
