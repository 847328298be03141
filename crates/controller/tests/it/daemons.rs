//! Tests with daemons that follow the reference's protocol, as the real daemon does.

use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::{
    MachineConfig, MachineConfigPool, annotation, machine_config_pool::MachineConfigPoolStatus,
};
use mco_testkit::daemons::{
    Daemons, FAILS_AFTER_DRAIN, IN_PLACE, REBOOT, Script, UNRECONCILABLE, UNRESPONSIVE,
};
use serde_json::json;

use crate::{
    fleet::{Fleet, INFRA, is},
    server::{Server, on_both},
};

on_both! {
    a_pool_updates_within_its_limit_and_every_node_is_uncordoned,
    a_failed_config_is_rolled_back_and_reaches_no_further_node,
    a_rejected_config_is_rolled_back_and_reaches_no_further_node,
    a_roll_out_can_be_paused_and_widened,
    a_lost_node_keeps_its_slot_and_a_waiting_node_can_change_pools,
}

async fn limit(fleet: &Fleet, most: usize, paused: bool) {
    let spec = json!({"spec": {"maxUnavailable": most, "paused": paused}});
    fleet.patch::<MachineConfigPool>("worker", spec).await;
}

fn value<'n>(node: &'n Node, key: &str) -> &'n str {
    node.annotations().get(key).map(String::as_str).unwrap_or_default()
}

// covers: DRN-1, DRN-2, NOD-5
async fn a_pool_updates_within_its_limit_and_every_node_is_uncordoned(server: Server) {
    let fleet = Fleet::on(server, 6).await;
    limit(&fleet, 2, false).await;
    // Every other node need not be drained.
    let daemons = Daemons::start(fleet.client.clone(), |node, _| {
        if ["n1", "n3", "n5"].contains(&node) { IN_PLACE } else { REBOOT }
    });
    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    fleet.wait_for_update(&new).await;
    let busiest = daemons.max_updating();
    assert!((1..=2).contains(&busiest.len()), "{busiest:?}");
    for number in 0..6 {
        let node = fleet.all::<Node>().get(&format!("n{number}")).await.unwrap();
        let answer = value(&node, annotation::LAST_APPLIED_DRAIN.name());
        assert_eq!(answer, format!("uncordon-{new}"), "n{number}");
        assert!(!node.spec.unwrap().unschedulable.unwrap_or_default(), "n{number}");
    }
    fleet.stop().await;
}

// covers: NOD-8, NOD-14
async fn a_failed_config_is_rolled_back_and_reaches_no_further_node(server: Server) {
    rolled_back(server, FAILS_AFTER_DRAIN).await;
}

// covers: NOD-14
async fn a_rejected_config_is_rolled_back_and_reaches_no_further_node(server: Server) {
    rolled_back(server, UNRECONCILABLE).await;
}

async fn rolled_back(server: Server, script: Script) {
    let fleet = Fleet::on(server, 4).await;
    let old = fleet.rendered().await;
    let good = old.clone();
    let daemons =
        Daemons::start(
            fleet.client.clone(),
            move |_, config| {
                if config == good { REBOOT } else { script }
            },
        );
    fleet.apply_config("50-motd", "/etc/motd").await;
    let bad = fleet.rendered_anew(&old).await;
    fleet.wait_for_pool("it is degraded", |status| is(status, "Degraded", "True")).await;
    let victims = fleet.under_way(&bad).await;
    assert_eq!(victims.len(), 1, "{victims:?}");
    fleet.all::<MachineConfig>().delete("50-motd", &DeleteParams::default()).await.unwrap();
    fleet.wait_for_update(&old).await;
    fleet.wait_for_pool("the pool has recovered", |status| is(status, "Degraded", "False")).await;
    assert_eq!(daemons.max_updating(), victims, "no other node was updated");
    let node = fleet.all::<Node>().get(&victims[0]).await.unwrap();
    assert_eq!(value(&node, annotation::CURRENT_CONFIG.name()), old);
    assert!(!node.spec.unwrap().unschedulable.unwrap_or_default(), "the node is uncordoned");
    fleet.stop().await;
}

// covers: NOD-18
async fn a_roll_out_can_be_paused_and_widened(server: Server) {
    let fleet = Fleet::on(server, 6).await;
    let daemons = Daemons::start_held(fleet.client.clone(), 2, REBOOT);
    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    fleet
        .wait_for_pool("two are updated, the third is under way", |status| {
            status.updated_machine_count == 2 && status.unavailable_machine_count == 1
        })
        .await;
    limit(&fleet, 1, true).await;
    let message = format!("Pool is paused; will not update to MachineConfig {new}");
    let is_paused = |status: &MachineConfigPoolStatus| {
        status.conditions.iter().any(|c| c.kind == "Updating" && c.message == message)
    };
    fleet.wait_for_pool("the pause is seen", is_paused).await;
    daemons.release();
    let paused = fleet
        .wait_for_pool("no node is updating", |status| {
            is_paused(status) && status.unavailable_machine_count == 0
        })
        .await;
    assert_eq!(paused.updated_machine_count, 3, "{paused:?}");
    assert_eq!(daemons.max_updating().len(), 1);
    assert_eq!(fleet.under_way(&new).await, [""; 0]);
    daemons.reset_max_updating();
    limit(&fleet, 3, false).await;
    fleet.wait_for_update(&new).await;
    let busiest = daemons.max_updating();
    assert!((1..=3).contains(&busiest.len()), "{busiest:?}");
    fleet.stop().await;
}

// covers: NOD-33
async fn a_lost_node_keeps_its_slot_and_a_waiting_node_can_change_pools(server: Server) {
    let fleet = Fleet::on(server, 4).await;
    let infra = fleet.infra_pool().await;
    // The first of them is lost.
    let daemons =
        Daemons::start(
            fleet.client.clone(),
            |node, _| if node == "n0" { UNRESPONSIVE } else { REBOOT },
        );
    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    let node = fleet.wait_for_start(&new).await;
    assert_eq!(node, "n0");
    let other = "n1";

    // A waiting node moves to another pool and follows that pool's config from then on.
    let role = json!({"metadata": {"labels": {INFRA: ""}}});
    fleet.patch::<Node>(other, role).await;
    let moved = fleet.wait::<MachineConfigPool>("infra", "it has its node, updated", |pool| {
        let status = pool.status.clone().unwrap_or_default();
        let rendered = &pool.spec.configuration.rendered.name;
        status.machine_count == 1
            && *rendered != infra
            && status.configuration.rendered.name == *rendered
            && is(&status, "Updated", "True")
    });
    let target = moved.await.spec.configuration.rendered.name;
    let found = fleet.all::<Node>().get(other).await.unwrap();
    assert_eq!(value(&found, annotation::CURRENT_CONFIG.name()), target);

    assert_eq!(fleet.under_way(&new).await, [node.as_str()], "the node keeps its slot");
    fleet.all::<Node>().delete(&node, &DeleteParams::default()).await.unwrap();
    fleet.wait_for_update(&new).await;
    assert!(daemons.max_updating().len() <= 2, "{:?}", daemons.max_updating());
    fleet.stop().await;
}
