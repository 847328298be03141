//! Tests of rendering and roll-out.

use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt, api::ListParams};
use mco_api::{MachineConfig, MachineConfigPool, annotation, label};
use mco_controller::Delays;
use serde_json::json;

use crate::{
    fleet::{Fleet, INFRA, is},
    server::{Server, on_both},
};

on_both! {
    one_node_at_a_time,
    a_paused_pool_renders_and_waits,
    an_invalid_config_degrades_the_pool_until_it_is_deleted,
    a_failed_node_stops_the_roll_out_and_a_new_config_repairs_it,
    max_unavailable_is_never_exceeded,
    a_deleted_rendered_config_is_created_again,
    a_node_that_changes_its_pool_is_counted_in_the_new_one,
}

// covers: REN-1, REN-5, REN-24, REN-26, REN-37, NOD-11, NOD-13, NOD-19, NOD-20, NOD-23
async fn one_node_at_a_time(server: Server) {
    let fleet = Fleet::on(server, 3).await;
    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    for updated in 0..3 {
        let node = fleet.wait_for_start(&new).await;
        fleet.write_daemon_state(&node, "Working", &old, "").await;
        let status = fleet
            .wait_for_pool("one node is out of service", |status| {
                status.unavailable_machine_count == 1 && status.updated_machine_count == updated
            })
            .await;
        assert_eq!(fleet.under_way(&new).await, [node.as_str()], "after {updated} updates");
        assert!(is(&status, "Updating", "True"), "{status:#?}");
        assert_eq!(status.configuration.rendered.name, old);
        fleet.write_daemon_state(&node, "Done", &new, "").await;
    }
    let status = fleet.wait_for_update(&new).await;
    let sources: Vec<_> = status.configuration.source.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(sources, ["00-worker", "50-motd"]);
    assert_eq!(status.ready_machine_count, 3);

    let rendered = fleet.all::<MachineConfig>().get(&new).await.unwrap();
    let version = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    assert_eq!(rendered.annotations().get(version).map(String::as_str), Some("abc"));
    assert_eq!(rendered.owner_references()[0].name, "worker");
    assert_eq!(rendered.owner_references()[0].uid.len(), 36);

    let expected = [
        format!("Targeted node n0 to MachineConfig: {new}"),
        format!("{new} successfully generated (release version: 4.20.0, controller version: abc)"),
        format!("Pool worker has completed update to MachineConfig {new}"),
    ];
    for text in expected {
        fleet
            .event_that(&text, |event| event.note.as_deref().is_some_and(|n| n.contains(&text)))
            .await;
    }
    fleet.stop().await;
}

// covers: NOD-18, REN-36
async fn a_paused_pool_renders_and_waits(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let old = fleet.rendered().await;
    let pause = |paused| json!({"spec": {"paused": paused}});
    fleet.patch::<MachineConfigPool>("worker", pause(true)).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    let message = format!("Pool is paused; will not update to MachineConfig {new}");
    fleet
        .wait_for_pool("the pool says that it is paused", |status| {
            status.conditions.iter().any(|c| c.kind == "Updating" && c.message == message)
        })
        .await;
    assert_eq!(fleet.under_way(&new).await, [""; 0]);

    fleet.patch::<MachineConfigPool>("worker", pause(false)).await;
    fleet.wait_for_start(&new).await;
    fleet.stop().await;
}

// covers: REN-7, REN-37, NOD-22
async fn an_invalid_config_degrades_the_pool_until_it_is_deleted(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let old = fleet.rendered().await;
    let bad = json!({
        "metadata": {"name": "99-bad", "labels": {label::ROLE: "worker"}},
        "spec": {"kernelType": "turbo", "config": {"ignition": {"version": "3.5.0"}}},
    });
    fleet.create::<MachineConfig>(&serde_json::from_value(bad).unwrap()).await;
    let status = fleet.wait_for_pool("it is degraded", |s| is(s, "Degraded", "True")).await;
    let condition = status.conditions.iter().find(|c| c.kind == "RenderDegraded").unwrap();
    assert!(
        condition.message.starts_with("Failed to render configuration for pool worker: ")
            && condition.message.contains("99-bad")
            && condition.message.contains("kernelType=turbo is invalid"),
        "{condition:?}"
    );
    assert_eq!(fleet.rendered().await, old);

    fleet
        .all::<MachineConfig>()
        .delete("99-bad", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    fleet
        .wait_for_pool("it has recovered", |s| {
            is(s, "Degraded", "False") && is(s, "RenderDegraded", "False")
        })
        .await;
    fleet.stop().await;
}

// covers: NOD-8, NOD-14, NOD-21
async fn a_failed_node_stops_the_roll_out_and_a_new_config_repairs_it(server: Server) {
    let fleet = Fleet::on(server, 3).await;
    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let bad = fleet.rendered_anew(&old).await;
    let node = fleet.wait_for_start(&bad).await;
    fleet.write_daemon_state(&node, "Degraded", &old, "disk full").await;
    let status = fleet.wait_for_pool("it is degraded", |s| is(s, "Degraded", "True")).await;
    let condition = status.conditions.iter().find(|c| c.kind == "NodeDegraded").unwrap();
    assert_eq!(condition.message, format!("Node {node} is reporting: \"disk full\""));
    assert_eq!(fleet.under_way(&bad).await, [node.as_str()], "the node keeps its slot");

    fleet.apply_config("60-issue", "/etc/issue").await;
    let good = fleet.rendered_anew(&bad).await;
    fleet
        .wait::<Node>(&node, "the failed node gets the new config", |n| {
            n.annotations().get(annotation::DESIRED_CONFIG.name()) == Some(&good)
        })
        .await;
    fleet.stop().await;
}

// covers: NOD-5
async fn max_unavailable_is_never_exceeded(server: Server) {
    let fleet = Fleet::on(server, 10).await;
    let limit = json!({"spec": {"maxUnavailable": "30%"}});
    fleet.patch::<MachineConfigPool>("worker", limit).await;
    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    for _ in 0..10 {
        let busy = fleet.wait_for_starts(&new).await;
        assert!(busy.len() <= 3, "{busy:?}");
        fleet.write_daemon_state(&busy[0], "Done", &new, "").await;
    }
    fleet.wait_for_update(&new).await;
    fleet.stop().await;
}

// covers: REN-2, REN-3, REN-27
#[tokio::test(start_paused = true)]
async fn many_configs_at_once_give_one_rendered_config() {
    // No time passes on the paused clock while any task is busy, on any machine.
    let fleet = Fleet::start(1).await;
    let old = fleet.rendered().await;
    fleet.patch::<MachineConfigPool>("worker", json!({"spec": {"paused": true}})).await;
    for number in 10..30 {
        fleet.apply_config(&format!("{number}-x"), &format!("/etc/x{number}")).await;
    }
    fleet
        .wait::<MachineConfigPool>("worker", "has all configs as sources", |pool| {
            pool.spec.configuration.source.len() == 21
        })
        .await;
    // Changes outside of the spec do not create a new rendered config.
    let note = json!({"metadata": {"annotations": {"note": "x"}}});
    fleet.patch::<MachineConfig>("10-x", note).await;
    // On the paused clock this sleep ends when no task has anything left to do.
    tokio::time::sleep(Delays::REFERENCE.render).await;
    let configs = fleet.all::<MachineConfig>().list(&ListParams::default()).await.unwrap();
    let rendered = configs.iter().filter(|config| config.name_any().starts_with("rendered-"));
    let rendered: Vec<_> = rendered.map(ResourceExt::name_any).collect();
    assert!(rendered.contains(&old) && rendered.len() == 2, "{rendered:?}");
    fleet.stop().await;
}

// covers: REN-29
async fn a_deleted_rendered_config_is_created_again(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let name = fleet.rendered().await;
    let configs = fleet.all::<MachineConfig>();
    let first = configs.get(&name).await.unwrap();
    configs.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    let second = fleet
        .wait::<MachineConfig>(&name, "exists again", |config| config.uid() != first.uid())
        .await;
    assert_eq!(first.spec, second.spec);
    fleet.stop().await;
}

// covers: NOD-33
async fn a_node_that_changes_its_pool_is_counted_in_the_new_one(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    fleet.infra_pool().await;
    let role = json!({"metadata": {"labels": {INFRA: ""}}});
    fleet.patch::<Node>("n1", role).await;
    fleet.wait_for_pool("it has one node less", |status| status.machine_count == 1).await;
    fleet
        .wait::<MachineConfigPool>("infra", "it has the node", |pool| {
            pool.status.as_ref().is_some_and(|status| status.machine_count == 1)
        })
        .await;
    fleet.stop().await;
}
