//! Tests of the handshake by which a daemon has its node cordoned and uncordoned: requests that are
//! withdrawn, and the owner of a cordon.

use k8s_openapi::api::core::v1::Node;
use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::annotation;
use serde_json::{Value, json};

use crate::{
    drain::{answered, ask, cordoned, names, record, stuck},
    fleet::Fleet,
    server::{Server, on_both},
};

on_both! {
    a_revert_during_a_blocked_drain_uncordons_the_node,
    a_cordon_that_an_earlier_controller_left_is_removed,
    a_cordon_of_the_user_survives_an_update_without_a_drain,
}

const OLD: &str = "uncordon-rendered-worker-old";
const NEW: &str = "drain-rendered-worker-new";

/// Sets the annotations of the handshake on `n0`.
async fn annotate(fleet: &Fleet, pairs: &[(&str, Option<&str>)]) {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
    let annotations: serde_json::Map<String, Value> = pairs.collect();
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": annotations}})).await;
}

/// Waits until `n0` is schedulable, its uncordon is acknowledged and no drain is recorded.
async fn uncordoned(fleet: &Fleet) {
    fleet
        .wait::<Node>("n0", "it is uncordoned", |node| {
            let annotations = node.annotations();
            let answer = annotations.get(annotation::LAST_APPLIED_DRAIN.name());
            !cordoned(node)
                && answer.map(String::as_str) == Some(OLD)
                && !annotations.contains_key(annotation::DRAIN_RECORD.name())
        })
        .await;
}

// covers: DRN-1, DRN-2
async fn a_revert_during_a_blocked_drain_uncordons_the_node(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let budgets = stuck(&fleet).await;
    // As after the update that brought the node to its config.
    let (asked, answer) = (annotation::DESIRED_DRAIN.name(), annotation::LAST_APPLIED_DRAIN.name());
    annotate(&fleet, &[(asked, Some(OLD)), (answer, Some(OLD))]).await;
    ask(&fleet, NEW).await;
    record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert!(cordoned(&node));
    assert!(!node.annotations().contains_key(answer), "the old answer is withdrawn");

    ask(&fleet, OLD).await;
    uncordoned(&fleet).await;
    assert_eq!(names(&fleet).await, ["web"], "the pod stays");

    // The same once more: the request of a revert is always the same text.
    ask(&fleet, NEW).await;
    record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    ask(&fleet, OLD).await;
    uncordoned(&fleet).await;

    ask(&fleet, NEW).await;
    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    assert!(cordoned(&answered(&fleet, NEW).await));
    fleet.stop().await;
}

async fn a_cordon_that_an_earlier_controller_left_is_removed(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    stuck(&fleet).await;
    ask(&fleet, NEW).await;
    record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    fleet.pause().await;
    // The earlier controller has not withdrawn its answer, and the daemon has reported Done.
    let (asked, answer) = (annotation::DESIRED_DRAIN.name(), annotation::LAST_APPLIED_DRAIN.name());
    annotate(&fleet, &[(asked, Some(OLD)), (answer, Some(OLD))]).await;
    fleet.resume();
    uncordoned(&fleet).await;
    fleet.stop().await;
}

// covers: DRN-2
async fn a_cordon_of_the_user_survives_an_update_without_a_drain(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    fleet.patch::<Node>("n0", json!({"spec": {"unschedulable": true}})).await;
    ask(&fleet, OLD).await;
    assert!(cordoned(&answered(&fleet, OLD).await), "the controller has not cordoned the node");
    fleet.stop().await;
}
