//! Tests of a pool's status about images: builds for the pool, and the streams that the cluster
//! offers.

use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::{
    MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus, MachineOSBuild, MachineOSConfig,
    OSImageStream, annotation,
};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, is},
    server::{Server, on_both},
};

on_both! {
    a_pool_in_image_mode_reports_its_build,
    a_failed_build_is_cleared_by_the_next_one,
    nodes_without_a_built_image_follow_their_config_and_others_are_kept,
    a_pool_reports_the_stream_of_all_its_nodes,
}

/// Returns a MachineOSConfig of the worker pool.
pub(crate) fn machine_os_config(annotations: &Value) -> MachineOSConfig {
    serde_json::from_value(json!({
        "metadata": {"name": "worker", "annotations": annotations},
        "spec": {
            "machineConfigPool": {"name": "worker"},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": "registry.test/os:latest",
        },
    }))
    .unwrap()
}

/// Creates a MachineOSConfig of the worker pool, and waits until the controller sees it.
async fn create_machine_os_config(fleet: &Fleet) {
    fleet.create(&machine_os_config(&json!({}))).await;
    fleet.wait_for_pool("it has no effect", |status| unsupported(status).is_some()).await;
}

/// Returns the message of the condition `ImageModeUnsupported`, if it is true.
fn unsupported(status: &MachineConfigPoolStatus) -> Option<&str> {
    let condition = status.conditions.iter().find(|found| found.kind == "ImageModeUnsupported")?;
    (condition.status == "True").then_some(condition.message.as_str())
}

/// Creates a build of the worker pool's config without a status.
async fn build(fleet: &Fleet, name: &str) {
    let config = fleet.rendered().await;
    let build = json!({
        "metadata": {"name": name},
        "spec": {
            "machineConfig": {"name": config},
            "machineOSConfig": {"name": "worker"},
            "renderedImagePushSpec": "registry.test/os:latest",
        },
    });
    fleet.create::<MachineOSBuild>(&serde_json::from_value(build).unwrap()).await;
}

/// Sets one condition of the build to true and all others to false.
async fn set_build_state(fleet: &Fleet, name: &str, state: &str) {
    let kinds = ["Prepared", "Building", "Succeeded", "Failed", "Interrupted"];
    let conditions = kinds.map(|kind| {
        json!({
            "type": kind, "status": if kind == state { "True" } else { "False" }, "reason": "Test",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    });
    fleet.patch_status::<MachineOSBuild>(name, json!({"conditions": conditions})).await;
}

async fn updating(fleet: &Fleet, status: &str, message: &str) {
    let what = format!("Updating={status} {message}");
    fleet
        .wait_for_pool(&what, |found| {
            found
                .conditions
                .iter()
                .any(|c| c.kind == "Updating" && c.status == status && c.message == message)
        })
        .await;
}

// covers: NOD-26
async fn a_pool_in_image_mode_reports_its_build(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    create_machine_os_config(&fleet).await;
    let states = [
        ("", "True", "Pool is waiting for OS image build to start"),
        ("Prepared", "True", "Pool is waiting for OS image build to start"),
        ("Building", "True", "Pool is waiting for OS image build to complete"),
        ("Succeeded", "True", "Pool is waiting for nodes to apply OS image"),
        ("Failed", "False", "Pool update stopped due to OS image build failure"),
        ("Interrupted", "False", "Pool update stopped due to OS image build being interrupted"),
    ];
    check_build_states(&fleet, &states).await;
    fleet.patch::<MachineConfigPool>("worker", json!({"spec": {"paused": true}})).await;
    let states = [
        ("", "True", "Pool is paused; OS image build has been created but not yet started"),
        (
            "Prepared",
            "True",
            "Pool is paused; OS image build has been prepared but will not rollout",
        ),
        ("Building", "True", "Pool is paused; OS image build in progress"),
        ("Succeeded", "False", "Pool is paused; OS image build completed successfully"),
        ("Failed", "False", "Pool is paused; OS image build failed"),
        ("Interrupted", "False", "Pool is paused; OS image build was interrupted"),
    ];
    check_build_states(&fleet, &states).await;
    fleet.stop().await;
}

/// Goes through builds in several states, each with the expected status of the pool.
async fn check_build_states(fleet: &Fleet, states: &[(&str, &str, &str)]) {
    for (number, (state, status, text)) in states.iter().enumerate() {
        let name = format!("b{number}");
        build(fleet, &name).await;
        if !state.is_empty() {
            set_build_state(fleet, &name, state).await;
        }
        updating(fleet, status, &format!("{text} (mosb: {name})")).await;
        // A completed build keeps its state.
        fleet.all::<MachineOSBuild>().delete(&name, &DeleteParams::default()).await.unwrap();
        fleet.gone::<MachineOSBuild>(&name).await;
    }
}

// covers: NOD-12, NOD-15
async fn nodes_without_a_built_image_follow_their_config_and_others_are_kept(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    let image = "registry.test/os@sha256:1";
    let built = json!({
        annotation::CURRENT_IMAGE.name(): image, annotation::DESIRED_IMAGE.name(): image,
    });
    create_machine_os_config(&fleet).await;
    fleet.patch::<Node>("n1", json!({"metadata": {"annotations": built}})).await;
    fleet.apply_config("50-more", "/etc/more").await;
    let new = fleet.rendered_anew(&old).await;
    assert_eq!(fleet.wait_for_start(&new).await, "n0", "it runs no built image");
    fleet.write_daemon_state("n0", "Done", &new, "").await;
    let status = fleet
        .wait_for_pool("one node is kept", |status| {
            unsupported(status).is_some_and(|text| text.contains("1 node runs a built image"))
                && status.updated_machine_count == 1
                && is(status, "Updating", "False")
        })
        .await;
    assert!(is(&status, "Updated", "False") && is(&status, "Degraded", "False"));
    // The node reports its wait, and has no taint.
    fleet
        .wait::<MachineConfigNode>("n1", "it says why it waits", |node| {
            let conditions = node.status.clone().unwrap_or_default().conditions;
            conditions.iter().any(|c| c.type_ == "Waiting" && c.reason == "ImageMode")
        })
        .await;
    let node = fleet.all::<Node>().get("n1").await.unwrap();
    assert_eq!(node.annotations().get(annotation::DESIRED_CONFIG.name()), Some(&old));
    let taints = node.spec.unwrap_or_default().taints.unwrap_or_default();
    assert!(taints.iter().all(|taint| taint.key != "UpdateInProgress"), "{taints:?}");
    // The MachineOSConfig says so, too.
    fleet
        .wait::<MachineOSConfig>("worker", "it says that it has no effect", |config| {
            let status = config.status.clone().unwrap_or_default();
            status.conditions.iter().any(|c| c.type_ == "Failure" && c.status == "True")
        })
        .await;

    // Without the MachineOSConfig the node leaves image mode.
    fleet.all::<MachineOSConfig>().delete("worker", &DeleteParams::default()).await.unwrap();
    fleet
        .wait::<Node>("n1", "it leaves image mode", |node| {
            let annotations = node.annotations();
            annotations.get(annotation::DESIRED_CONFIG.name()) == Some(&new)
                && !annotations.contains_key(annotation::DESIRED_IMAGE.name())
        })
        .await;
    fleet.wait_for_pool("it has no condition", |status| unsupported(status).is_none()).await;
    fleet.stop().await;
}

/// Reports on behalf of a builder that the pool's build failed.
async fn build_failed(fleet: &Fleet) {
    let pool = fleet.all::<MachineConfigPool>().get("worker").await.unwrap();
    let mut conditions = pool.status.unwrap().conditions;
    conditions.retain(|found| found.kind != "ImageBuildDegraded");
    let mut conditions = json!(conditions);
    conditions.as_array_mut().unwrap().push(json!({
        "type": "ImageBuildDegraded", "status": "True", "reason": "BuildFailed",
        "message": "it failed", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    fleet.patch_status::<MachineConfigPool>("worker", json!({"conditions": conditions})).await;
}

// covers: NOD-27
async fn a_failed_build_is_cleared_by_the_next_one(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let forgotten = async |reason: &str| {
        fleet
            .wait_for_pool(reason, |status| {
                let is_it = |c: &&_| c_is(c, "ImageBuildDegraded", reason);
                status.conditions.iter().find(is_it).is_some_and(|c| c.status == "False")
                    && is(status, "Degraded", "False")
            })
            .await;
    };
    build_failed(&fleet).await;
    forgotten("NoLayeredObjects").await;
    create_machine_os_config(&fleet).await;
    build_failed(&fleet).await;
    forgotten("BuildPending").await;
    build(&fleet, "b1").await;
    set_build_state(&fleet, "b1", "Building").await;
    build_failed(&fleet).await;
    forgotten("Building").await;
    build_failed(&fleet).await;
    set_build_state(&fleet, "b1", "Succeeded").await;
    forgotten("BuildSuccess").await;
    fleet.stop().await;
}

fn c_is(condition: &mco_api::meta::LooseCondition, kind: &str, reason: &str) -> bool {
    condition.kind == kind && condition.reason == reason
}

// covers: NOD-36
async fn a_pool_reports_the_stream_of_all_its_nodes(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let old = fleet.rendered().await;
    let streams = json!({
        "metadata": {"name": "cluster", "annotations": {
            annotation::RELEASE_IMAGE_VERSION.name(): "abc",
        }},
        "spec": {"defaultStream": "rhel-9"},
    });
    fleet.create::<OSImageStream>(&serde_json::from_value(streams).unwrap()).await;
    let image = format!("quay.test/os@sha256:{}", "9".repeat(64));
    let status = json!({
        "defaultStream": "rhel-9",
        "availableStreams": [{"name": "rhel-9", "osImage": image, "osExtensionsImage": image}],
    });
    fleet.patch_status::<OSImageStream>("cluster", status).await;
    let new = fleet.rendered_anew(&old).await;
    let node = fleet.wait_for_start(&new).await;
    let pool = fleet.all::<MachineConfigPool>().get("worker").await.unwrap();
    assert_eq!(pool.status.unwrap().os_image_stream, None, "not all nodes run the stream");
    fleet.write_daemon_state(&node, "Done", &new, "").await;
    let status =
        fleet.wait_for_pool("the condition is set", |status| status.os_image_stream.is_some());
    assert_eq!(status.await.os_image_stream.unwrap().name, "rhel-9");
    fleet.write_daemon_state(&node, "Degraded", &new, "broken").await;
    fleet.wait_for_pool("it has no stream", |status| status.os_image_stream.is_none()).await;
    fleet.stop().await;
}
