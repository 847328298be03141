//! Tests of the pinned image sets of a pool.

use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::{MachineConfigNode, MachineConfigPool, PinnedImageSet, label};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, is},
    server::{Server, on_both},
};

on_both! {
    a_pool_has_the_sets_that_its_selector_matches_by_name,
    an_invalid_pinned_image_selector_does_not_degrade_the_pool,
    a_pool_counts_the_nodes_that_have_all_images_of_their_sets,
}

fn set(name: &str, role: &str) -> PinnedImageSet {
    let digest = "0".repeat(64);
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::ROLE: role}},
        "spec": {"pinnedImages": [{"name": format!("quay.test/image@sha256:{digest}")}]},
    }))
    .unwrap()
}

async fn wait_for(fleet: &Fleet, expected: &str) -> MachineConfigPool {
    let has = |pool: &MachineConfigPool| {
        let names = pool.spec.pinned_image_sets.iter().map(|set| set.name.as_str());
        names.collect::<Vec<_>>().join(" ") == expected
    };
    fleet.wait::<MachineConfigPool>("worker", &format!("has the sets {expected:?}"), has).await
}

// covers: PIS-1
async fn a_pool_has_the_sets_that_its_selector_matches_by_name(server: Server) {
    let fleet = Fleet::on(server, 0).await;
    for (name, role) in [("b", "worker"), ("a", "worker"), ("m", "master")] {
        fleet.create(&set(name, role)).await;
    }
    wait_for(&fleet, "a b").await;
    // A set that the pool no longer selects is removed; in the reference it stays.
    let patch = json!({"metadata": {"labels": {label::ROLE: "master"}}});
    fleet.patch::<PinnedImageSet>("a", patch).await;
    wait_for(&fleet, "b").await;
    // An edit by another client is reverted.
    let edit = json!({"spec": {"pinnedImageSets": [{"name": "x"}]}});
    fleet.patch::<MachineConfigPool>("worker", edit).await;
    wait_for(&fleet, "b").await;
    fleet.all::<PinnedImageSet>().delete("b", &DeleteParams::default()).await.unwrap();
    let pool = wait_for(&fleet, "").await;
    assert_eq!(pool.name_any(), "worker");
    fleet.stop().await;
}

// covers: PIS-2
async fn an_invalid_pinned_image_selector_does_not_degrade_the_pool(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    fleet.create(&set("a", "worker")).await;
    wait_for(&fleet, "a").await;
    let broken = json!({"spec": {"machineConfigSelector": {"matchExpressions": [
        {"key": label::ROLE, "operator": "Near", "values": ["worker"]},
    ]}}});
    fleet.patch::<MachineConfigPool>("worker", broken).await;
    let said = fleet
        .wait_for_pool("the condition is set", |status| {
            is(status, "PinnedImageSetsDegraded", "True")
        })
        .await;
    let found = said.conditions.iter().find(|c| c.kind == "PinnedImageSetsDegraded").unwrap();
    let expected = "Failed to populate pinned image sets for pool worker: ";
    assert!(found.message.starts_with(expected), "{}", found.message);
    let repaired = json!({"spec": {"machineConfigSelector": {
        "matchExpressions": null, "matchLabels": {label::ROLE: "worker"},
    }}});
    fleet.patch::<MachineConfigPool>("worker", repaired).await;
    fleet
        .wait_for_pool("the pool has recovered", |status| {
            is(status, "PinnedImageSetsDegraded", "False")
        })
        .await;
    fleet.stop().await;
}

// covers: NOD-25
async fn a_pool_counts_the_nodes_that_have_all_images_of_their_sets(server: Server) {
    let fleet = Fleet::on(server, 2).await;
    let counted = async |updated: i64| {
        fleet
            .wait_for_pool(&format!("{updated} nodes have their images"), |status| {
                let [counts] = status.pool_synchronizers_status.as_slice() else { return false };
                counts.pool_synchronizer_type.as_str() == "PinnedImageSets"
                    && counts.updated_machine_count == updated
                    && (counts.machine_count, counts.available_machine_count) == (2, 2)
                    && (counts.ready_machine_count, counts.unavailable_machine_count) == (2, 0)
            })
            .await;
    };
    let says = async |node: &str, sets: Value| {
        let heard = json!([{"type": "Updated", "status": "True", "reason": "Updated",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let status = json!({"conditions": heard, "pinnedImageSets": sets});
        fleet.wait::<MachineConfigNode>(node, "it is there", |_| true).await;
        fleet.patch_status::<MachineConfigNode>(node, status).await;
    };
    let at = |current: i32, desired: i32| json!([{"name": "a", "currentGeneration": current, "desiredGeneration": desired}]);
    // A node without images to pull has all of them.
    says("n0", json!([])).await;
    says("n1", json!([])).await;
    counted(2).await;
    says("n0", at(1, 2)).await;
    counted(1).await;
    says("n1", at(1, 2)).await;
    counted(0).await;
    says("n0", at(2, 2)).await;
    counted(1).await;
    says("n1", at(2, 2)).await;
    counted(2).await;
    fleet.stop().await;
}
