//! Tests of existing rendered configs: edits, deletion, pruning.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool, annotation};
use serde_json::json;

use crate::{
    fleet::{Fleet, is},
    server::{Server, on_both},
};

on_both! {
    an_edited_rendered_config_is_restored,
    an_edited_previous_config_is_restored,
    a_restarted_controller_leaves_rendered_configs_alone,
    unused_configs_are_pruned_and_used_ones_kept,
    a_config_that_only_a_node_or_its_report_names_is_kept,
    a_deleted_config_is_created_again_without_other_changes,
}

async fn rendered(fleet: &Fleet) -> BTreeSet<String> {
    let configs = fleet.all::<MachineConfig>().list(&ListParams::default()).await.unwrap();
    let names = configs.iter().map(kube::ResourceExt::name_any);
    names.filter(|name| name.starts_with("rendered-")).collect()
}

// covers: REN-28
async fn an_edited_rendered_config_is_restored(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let name = fleet.rendered().await;
    let made = fleet.all::<MachineConfig>().get(&name).await.unwrap();
    let edit = json!({"spec": {"fips": true, "kernelArguments": ["quiet"]}});
    fleet.patch::<MachineConfig>(&name, edit.clone()).await;
    let is_back = |config: &MachineConfig| {
        config.metadata.generation > made.metadata.generation && config.spec == made.spec
    };
    let back = fleet.wait::<MachineConfig>(&name, "is restored", is_back).await;
    assert_eq!(back.uid(), made.uid());

    // An edit while no controller runs is reverted, too.
    fleet.pause().await;
    fleet.patch::<MachineConfig>(&name, edit).await;
    fleet.resume();
    fleet.wait::<MachineConfig>(&name, "is restored", |config| config.spec == made.spec).await;
    fleet.stop().await;
}

// covers: REN-28
async fn an_edited_previous_config_is_restored(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let old = fleet.rendered().await;
    let made = fleet.all::<MachineConfig>().get(&old).await.unwrap();
    fleet.patch::<MachineConfigPool>("worker", json!({"spec": {"paused": true}})).await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    fleet.rendered_anew(&old).await;
    let edit = json!({"spec": {"kernelArguments": ["quiet"]}});
    fleet.patch::<MachineConfig>(&old, edit).await;
    let is_back = |config: &MachineConfig| {
        config.metadata.generation > made.metadata.generation && config.spec == made.spec
    };
    fleet.wait::<MachineConfig>(&old, "is restored", is_back).await;
    fleet.stop().await;
}

// covers: REN-27
async fn a_restarted_controller_leaves_rendered_configs_alone(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let name = fleet.rendered().await;
    let before = fleet.all::<MachineConfig>().get(&name).await.unwrap();
    fleet.pause().await;
    fleet.resume();
    // A change that the new controller must have rendered itself.
    fleet.apply_config("50-motd", "/etc/motd").await;
    fleet.rendered_anew(&name).await;
    let after = fleet.all::<MachineConfig>().get(&name).await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
    fleet.stop().await;
}

// covers: REN-39
async fn unused_configs_are_pruned_and_used_ones_kept(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let first = fleet.rendered().await;
    let marks = |value: &str| {
        json!({"metadata": {"annotations": {annotation::RENDERED_HISTORY.name(): value}},
            "spec": {"paused": true}})
    };
    fleet.patch::<MachineConfigPool>("worker", marks("all")).await;
    let mut all = vec![first.clone()];
    for number in 0..4 {
        let path = format!("/etc/x{number}");
        fleet.apply_config(&format!("50-x{number}"), &path).await;
        let last = all.last().unwrap().clone();
        all.push(fleet.rendered_anew(&last).await);
    }
    let everything: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(rendered(&fleet).await, everything, "all are kept");

    // The node runs the first, the pool has the last; besides, the newest is kept. Among configs of
    // the same second the name decides which one that is.
    let configs = fleet.all::<MachineConfig>().list(&ListParams::default()).await.unwrap();
    let made = configs.iter().filter(|config| everything.contains(&config.name_any()));
    let newest = made.max_by_key(|config| (config.creation_timestamp(), config.name_any()));
    let named = BTreeSet::from([first, all.last().unwrap().clone()]);
    let mut kept = named.clone();
    kept.insert(newest.unwrap().name_any());
    fleet.patch::<MachineConfigPool>("worker", marks("1")).await;
    for config in everything.difference(&kept) {
        fleet.gone::<MachineConfig>(config).await;
    }
    assert_eq!(rendered(&fleet).await, kept);

    // With a history of zero, only the configs of the node and the pool stay.
    fleet.patch::<MachineConfigPool>("worker", marks("0")).await;
    for config in everything.difference(&named) {
        fleet.gone::<MachineConfig>(config).await;
    }
    assert_eq!(rendered(&fleet).await, named);
    let status =
        fleet.wait_for_pool("the pool has recovered", |s| is(s, "RenderDegraded", "False")).await;
    assert!(!is(&status, "Degraded", "True"));
    fleet.stop().await;
}

// covers: REN-29
async fn a_deleted_config_is_created_again_without_other_changes(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let name = fleet.rendered().await;
    fleet.pause().await;
    fleet.all::<MachineConfig>().delete(&name, &DeleteParams::default()).await.unwrap();
    fleet.resume();
    fleet.wait::<MachineConfig>(&name, "exists again", |_| true).await;
    fleet.stop().await;
}

// covers: REN-39
async fn a_config_that_only_a_node_or_its_report_names_is_kept(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let marks = |value: &str| {
        json!({"metadata": {"annotations": {annotation::RENDERED_HISTORY.name(): value}},
            "spec": {"paused": true}})
    };
    fleet.patch::<MachineConfigPool>("worker", marks("all")).await;
    let mut all = vec![fleet.rendered().await];
    for number in 0..4 {
        let path = format!("/etc/x{number}");
        fleet.apply_config(&format!("50-x{number}"), &path).await;
        let last = all.last().unwrap().clone();
        all.push(fleet.rendered_anew(&last).await);
    }
    let current = json!({annotation::CURRENT_CONFIG.name(): all[1]});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": current}})).await;
    let reported = json!({"configVersion": {"current": all[2], "desired": all[2]}});
    fleet.patch_status::<MachineConfigNode>("n0", reported).await;
    let is_reported = |report: &MachineConfigNode| {
        let version = report.status.as_ref().and_then(|status| status.config_version.as_ref());
        version.is_some_and(|version| version.current == all[2])
    };
    fleet.wait::<MachineConfigNode>("n0", "reports the third config", is_reported).await;
    fleet.patch::<MachineConfigPool>("worker", marks("0")).await;
    fleet.gone::<MachineConfig>(&all[3]).await;
    let kept: BTreeSet<String> = all.iter().filter(|config| **config != all[3]).cloned().collect();
    assert_eq!(rendered(&fleet).await, kept);
    fleet.stop().await;
}
