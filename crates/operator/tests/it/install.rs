//! Tests of the operator in an empty cluster.

use kube::{Api, Client, ResourceExt, api::PatchParams};
use mco_api::{ControllerConfig, MachineConfigPool, annotation, label};
use serde_json::{Value, json};

use crate::support::{Operator, cluster, condition, config, wait};

async fn set_pool_status(client: &Client, name: &str, status: Value) {
    let api = Api::<MachineConfigPool>::all(client.clone());
    let patch = kube::api::Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

// covers: O13, O17, O28, O29, O30, O33
#[tokio::test]
async fn an_empty_cluster_is_installed_and_reported() {
    let client = cluster().await;
    let running = Operator::start(&client, &config("v1", "4.20.0"));

    let operator = wait(&client, "Progressing is true", |operator| {
        condition(operator, "Progressing").starts_with("True")
    })
    .await;
    assert_eq!(condition(&operator, "Progressing"), "True : Working towards 4.20.0");
    assert_eq!(condition(&operator, "Degraded"), "False : ");

    let pools = Api::<MachineConfigPool>::all(client.clone());
    let master = pools.get("master").await.unwrap();
    assert!(master.labels().contains_key(label::REQUIRED_FOR_UPGRADE));
    assert!(!pools.get("worker").await.unwrap().labels().contains_key(label::REQUIRED_FOR_UPGRADE));
    let cluster = Api::<ControllerConfig>::all(client.clone());
    let cluster = cluster.get(label::CONTROLLER_CONFIG).await.unwrap();
    let by = annotation::GENERATED_BY_VERSION.name();
    assert_eq!(cluster.annotations().get(by).map(String::as_str), Some("v1"));
    assert!(cluster.status.is_none(), "the controller writes the status");

    // Acts as the controller: the pool gets a config and its nodes run it.
    let patch =
        kube::api::Patch::Merge(json!({"spec": {"configuration": {"name": "rendered-master-1"}}}));
    let master = pools.patch("master", &PatchParams::default(), &patch).await.unwrap();
    let now = "2026-01-01T00:00:00Z";
    let updated = json!({"type": "Updated", "status": "True", "lastTransitionTime": now});
    let generation = master.metadata.generation;
    set_pool_status(
        &client,
        "master",
        json!({"observedGeneration": generation, "machineCount": 0,
        "updatedMachineCount": 0, "readyMachineCount": 0, "unavailableMachineCount": 0,
        "degradedMachineCount": 0, "certExpirys": [],
        "configuration": {"name": "rendered-master-1"}, "conditions": [updated]}),
    )
    .await;
    let operator = wait(&client, "the version is reached", |operator| {
        condition(operator, "Progressing").starts_with("False")
    })
    .await;
    assert_eq!(condition(&operator, "Progressing"), "False : Cluster version is 4.20.0");
    assert!(condition(&operator, "Available").starts_with("True AsExpected: Cluster has deployed"));
    assert_eq!(operator.status.clone().unwrap().versions[0].version, "4.20.0");

    let broken = json!({"type": "Degraded", "status": "True", "message": "n is broken",
        "lastTransitionTime": now});
    set_pool_status(&client, "master", json!({"conditions": [updated, broken]})).await;
    let operator = wait(&client, "the cluster is degraded", |operator| {
        condition(operator, "Degraded").starts_with("True")
    })
    .await;
    assert!(condition(&operator, "Degraded").starts_with("True RequiredPoolsFailed: "));
    assert!(condition(&operator, "Upgradeable").starts_with("False DegradedPool: "));

    set_pool_status(&client, "master", json!({"conditions": [updated]})).await;
    wait(&client, "Degraded is false again", |o| condition(o, "Degraded") == "False : ").await;

    running.stop().await;
}
