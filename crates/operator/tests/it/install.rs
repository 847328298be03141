//! Tests of the operator in an empty cluster.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{PatchParams, PostParams},
    runtime::wait::{await_condition, conditions},
};
use mco_api::{
    ClusterOperator, ControllerConfig, MachineConfig, MachineConfigPool, annotation, label,
};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::Shutdown;
use mco_core::render::Build;
use mco_operator::{Config, RootCa};
use serde_json::{Value, json};

/// Longer than any wait on a busy machine; a wait that takes this long means a bug.
const TIMEOUT: Duration = Duration::from_mins(5);

async fn wait(
    client: &Client,
    what: &str,
    holds: impl Fn(&ClusterOperator) -> bool,
) -> ClusterOperator {
    let api = Api::<ClusterOperator>::all(client.clone());
    let waiting = async {
        // The kind cannot be watched before the operator has installed it.
        let kinds = Api::<CustomResourceDefinition>::all(client.clone());
        let kind = "clusteroperators.config.openshift.io";
        await_condition(kinds, kind, conditions::is_crd_established()).await.unwrap();
        let condition = |found: Option<&ClusterOperator>| found.is_some_and(&holds);
        await_condition(api, "machine-config", condition).await.unwrap().unwrap()
    };
    tokio::time::timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

fn condition(operator: &ClusterOperator, kind: &str) -> String {
    let status = operator.status.clone().unwrap_or_default();
    let found = status.conditions.iter().find(|condition| condition.kind == kind);
    found.map_or_else(String::new, |c| format!("{} {}: {}", c.status, c.reason, c.message))
}

async fn set_pool_status(client: &Client, name: &str, status: Value) {
    let api = Api::<MachineConfigPool>::all(client.clone());
    let patch = kube::api::Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn config_map(client: &Client, name: &str, key: &str, value: &str) {
    let made = json!({"metadata": {"name": name}, "data": {key: value}});
    let made: ConfigMap = serde_json::from_value(made).unwrap();
    let api = Api::<ConfigMap>::namespaced(client.clone(), label::NAMESPACE);
    api.create(&PostParams::default(), &made).await.unwrap();
}

#[tokio::test]
async fn the_root_ca_is_read_from_the_cluster_if_none_is_configured() {
    let server = ApiServer::in_memory(Settings::default()).await.unwrap();
    let client = Client::new(server, "default");
    let namespace = json!({"metadata": {"name": label::NAMESPACE}});
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    config_map(&client, "kube-root-ca.crt", "ca.crt", "the cluster's own").await;
    let shutdown = Shutdown::new();
    let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
    let config = Config::new(build, "4.20.0");
    let running = tokio::spawn(mco_operator::run(config, client.clone(), shutdown.clone()));

    wait(&client, "Progressing is true", |o| condition(o, "Progressing").starts_with("True")).await;
    let cluster = Api::<ControllerConfig>::all(client.clone());
    let cluster = cluster.get(label::CONTROLLER_CONFIG).await.unwrap();
    assert_eq!(cluster.spec.root_ca_data.as_slice(), b"the cluster's own");

    shutdown.request();
    tokio::time::timeout(TIMEOUT, running).await.expect("the operator stops").unwrap();
}

// covers: O13, O17, O28, O29, O30, O33
#[tokio::test]
async fn an_empty_cluster_is_installed_and_reported() {
    let server = ApiServer::in_memory(Settings::default()).await.unwrap();
    let client = Client::new(server, "default");
    let shutdown = Shutdown::new();
    let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
    let config =
        Config { root_ca: RootCa::Fixed("authority".to_owned()), ..Config::new(build, "4.20.0") };
    let running = tokio::spawn(mco_operator::run(config, client.clone(), shutdown.clone()));

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
    let configs = Api::<MachineConfig>::all(client.clone());
    let base = configs.get("00-worker").await.unwrap();
    let version = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    assert_eq!(base.annotations().get(version).map(String::as_str), Some("abc"));
    let cluster = Api::<ControllerConfig>::all(client.clone());
    let cluster = cluster.get(label::CONTROLLER_CONFIG).await.unwrap();
    let by = annotation::GENERATED_BY_VERSION.name();
    assert_eq!(cluster.annotations().get(by).map(String::as_str), Some("v1"));
    assert_eq!(cluster.status.unwrap().observed_generation, cluster.metadata.generation.unwrap());

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

    shutdown.request();
    tokio::time::timeout(TIMEOUT, running).await.expect("the operator stops").unwrap();
}
