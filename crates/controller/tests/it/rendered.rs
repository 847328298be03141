//! What becomes of rendered configs: edits, deletions, old age.

use std::collections::BTreeSet;

use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use mco_api::{MachineConfig, MachineConfigPool, annotation};
use serde_json::json;

use crate::{
    fleet::{Fleet, is},
    server::{Server, on_both},
};

on_both! {
    an_edit_of_the_rendered_config_is_taken_back,
    so_is_an_edit_of_the_one_that_nodes_still_have,
    a_controller_that_starts_leaves_rendered_configs_alone,
    old_configs_go_when_nobody_names_them_and_none_that_somebody_does,
    a_deleted_config_comes_back_even_if_nothing_else_changes,
}

async fn rendered(fleet: &Fleet) -> BTreeSet<String> {
    let configs = fleet.all::<MachineConfig>().list(&ListParams::default()).await.unwrap();
    let names = configs.iter().map(kube::ResourceExt::name_any);
    names.filter(|name| name.starts_with("rendered-")).collect()
}

// covers: REN-28
async fn an_edit_of_the_rendered_config_is_taken_back(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let name = fleet.rendered().await;
    let made = fleet.all::<MachineConfig>().get(&name).await.unwrap();
    let edit = json!({"spec": {"fips": true, "kernelArguments": ["quiet"]}});
    fleet.patch::<MachineConfig>(&name, edit.clone()).await;
    let is_back = |config: &MachineConfig| {
        config.metadata.generation > made.metadata.generation && config.spec == made.spec
    };
    let back = fleet.wait::<MachineConfig>(&name, "it is as it was", is_back).await;
    assert_eq!(back.uid(), made.uid());

    // Also one that was made while nobody looked.
    fleet.pause().await;
    fleet.patch::<MachineConfig>(&name, edit).await;
    fleet.resume();
    fleet.wait::<MachineConfig>(&name, "it is as it was", |config| config.spec == made.spec).await;
    fleet.stop().await;
}

// covers: REN-28
async fn so_is_an_edit_of_the_one_that_nodes_still_have(server: Server) {
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
    fleet.wait::<MachineConfig>(&old, "it is as it was", is_back).await;
    fleet.stop().await;
}

// covers: REN-27
async fn a_controller_that_starts_leaves_rendered_configs_alone(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let name = fleet.rendered().await;
    let before = fleet.all::<MachineConfig>().get(&name).await.unwrap();
    fleet.pause().await;
    fleet.resume();
    // Something that the new one must have rendered by itself.
    fleet.apply_config("50-motd", "/etc/motd").await;
    fleet.rendered_anew(&name).await;
    let after = fleet.all::<MachineConfig>().get(&name).await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
    fleet.stop().await;
}

// covers: REN-39
async fn old_configs_go_when_nobody_names_them_and_none_that_somebody_does(server: Server) {
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
    assert_eq!(rendered(&fleet).await, everything, "while all are to be kept");

    // The node has the first, the pool the last; besides, the newest is to be kept. Within a second
    // the name decides which that is.
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

    // With nothing to be kept for its own sake, what node and pool name stays.
    fleet.patch::<MachineConfigPool>("worker", marks("0")).await;
    for config in everything.difference(&named) {
        fleet.gone::<MachineConfig>(config).await;
    }
    assert_eq!(rendered(&fleet).await, named);
    let status = fleet.wait_for_pool("it is well", |s| is(s, "RenderDegraded", "False")).await;
    assert!(!is(&status, "Degraded", "True"));
    fleet.stop().await;
}

// covers: REN-29
async fn a_deleted_config_comes_back_even_if_nothing_else_changes(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let name = fleet.rendered().await;
    fleet.pause().await;
    fleet.all::<MachineConfig>().delete(&name, &DeleteParams::default()).await.unwrap();
    fleet.resume();
    fleet.wait::<MachineConfig>(&name, "it is back", |_| true).await;
    fleet.stop().await;
}
