//! Tests of a cluster that another operator ran before.

use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{
    ControllerConfig, MachineConfigPool, MachineConfiguration, annotation,
    controller_config::ControllerConfigSpec, label,
};
use mco_core::takeover::{AdoptedBuild, Order};
use mco_operator::Config;
use serde_json::{Value, json};

use super::{edit, published};
use crate::support::{Operator, cluster, config, wait_for};

/// Makes the cluster one of another operator.
async fn give_away(client: &Client) {
    mco_operator::install(client).await.unwrap();
    let spec = ControllerConfigSpec {
        kube_api_server_serving_ca_data: b"authority".to_vec().into(),
        root_ca_data: b"authority".to_vec().into(),
        ..ControllerConfigSpec::default()
    };
    let mut found = ControllerConfig::new(label::CONTROLLER_CONFIG, spec);
    let by = annotation::GENERATED_BY_VERSION.name().to_owned();
    found.metadata.annotations = Some([(by, "v9".to_owned())].into());
    let configs = Api::<ControllerConfig>::all(client.clone());
    configs.create(&PostParams::default(), &found).await.unwrap();
}

/// Waits until a reconcile that starts now is complete: the pool worker is applied after the
/// MachineConfiguration.
async fn reconciled(client: &Client) {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    wait_for(&pools, "worker", "the first reconcile", |it| it.is_some()).await;
    pools.delete("worker", &DeleteParams::default()).await.unwrap();
    wait_for(&pools, "worker", "the pool comes back", |it| it.is_some()).await;
}

// covers: O37
#[tokio::test]
async fn the_object_of_another_operator_is_left_unless_nodes_wait_for_it() {
    let client = cluster().await;
    give_away(&client).await;
    let order = Order::TakeOver(AdoptedBuild::OfCluster);
    let operator = Operator::start(&client, &Config { order, ..config("v1", "4.20.0") });
    reconciled(&client).await;
    let api = Api::<MachineConfiguration>::all(client.clone());
    assert_eq!(api.get_opt(label::CLUSTER).await.unwrap(), None, "it is not created");

    let object = json!({"metadata": {"name": "cluster"}, "spec": {"managementState": "Managed"}});
    let object = serde_json::from_value(object).unwrap();
    let made = api.create(&PostParams::default(), &object).await.unwrap();
    reconciled(&client).await;
    assert_eq!(api.get(label::CLUSTER).await.unwrap(), made, "it has no status");

    // The other operator has fewer policies.
    let merged = json!({"files": [{"path": "/etc/theirs", "actions": []}]});
    let status = json!({"observedGeneration": made.metadata.generation,
        "nodeDisruptionPolicyStatus": {"clusterPolicies": merged}});
    let patch = Patch::Merge(json!({"status": status}));
    let theirs = api.patch_status(label::CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    reconciled(&client).await;
    assert_eq!(api.get(label::CLUSTER).await.unwrap(), theirs, "its policies are current");

    let own = json!([{"path": "/etc/own", "actions": [{"type": "None"}]}]);
    edit(&client, json!({"nodeDisruptionPolicy": {"files": own}})).await;
    let found = published(&client, "an edit is published", |_| true).await;
    let files =
        json!(found.status)["nodeDisruptionPolicyStatus"]["clusterPolicies"]["files"].take();
    let last = files.as_array().and_then(|files| files.last()).cloned();
    assert_eq!(last.unwrap_or(Value::Null)["path"], "/etc/own");
    operator.stop().await;
}
