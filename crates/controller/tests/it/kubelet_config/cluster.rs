//! Tests of the settings of nodes and of features, which a cluster without OpenShift's kinds has in a
//! ConfigMap.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};

use super::*;

on_both! {
    features_and_settings_of_nodes_become_machine_configs,
    the_latency_profile_changes_one_step_at_a_time,
    generated_configs_follow_the_profile_of_the_api_server,
    settings_that_cannot_be_read_change_nothing,
    settings_of_nodes_that_are_refused_are_an_event_and_change_nothing,
}

const NODE: &str = "97-worker-generated-kubelet";
const FEATURES: &str = "98-worker-generated-kubelet";
const CONFIG_MAP: &str = "cluster-settings";

fn maps(fleet: &Fleet) -> Api<ConfigMap> {
    Api::namespaced(fleet.client.clone(), label::NAMESPACE)
}

fn document(kind: &str, spec: &Value) -> String {
    let object = json!({
        "apiVersion": "config.openshift.io/v1", "kind": kind,
        "metadata": {"name": "cluster"}, "spec": spec,
    });
    format!("---\n{object}\n")
}

/// Writes the settings of the cluster.
async fn set(fleet: &Fleet, documents: &[String]) {
    let map = json!({"metadata": {"name": CONFIG_MAP}, "data": {"all": documents.concat()}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    if maps(fleet).get_opt(CONFIG_MAP).await.unwrap().is_none() {
        maps(fleet).create(&PostParams::default(), &map).await.unwrap();
        return;
    }
    let patch = Patch::Merge(json!({"data": map.data}));
    maps(fleet).patch(CONFIG_MAP, &PatchParams::default(), &patch).await.unwrap();
}

// covers: KUB-12, KUB-15, O45
async fn features_and_settings_of_nodes_become_machine_configs(server: Server) {
    let fleet = with_base(server, 0).await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    wait_for_message(&fleet, "pods", "Success").await;
    let absent = fleet.all::<MachineConfig>().get_opt(NODE).await.unwrap();
    assert_eq!(absent.map(|config| config.name_any()), None);
    let gates = |on: &str| {
        let features = json!({"customNoUpgrade": {"enabled": [on], "disabled": ["B"]}});
        document("FeatureGate", &features)
    };
    let node = document("Node", &json!({"cgroupMode": "v2"}));
    set(&fleet, &[gates("A"), node.clone()]).await;
    let expected = json!({"A": true, "B": false});
    for name in [NODE, FEATURES, GENERATED] {
        wait_for_field(&fleet, name, "featureGates", expected.clone()).await;
    }
    let made = fleet.all::<MachineConfig>().get(NODE).await.unwrap();
    let arguments = ["systemd.unified_cgroup_hierarchy=1", "cgroup_no_v1=\"all\""];
    assert_eq!(made.spec.kernel_arguments, arguments);
    set(&fleet, &[gates("C"), node]).await;
    let expected = json!({"C": true, "B": false});
    for name in [NODE, FEATURES, GENERATED] {
        wait_for_field(&fleet, name, "featureGates", expected.clone()).await;
    }
    maps(&fleet).delete(CONFIG_MAP, &DeleteParams::default()).await.unwrap();
    fleet.gone::<MachineConfig>(NODE).await;
    fleet.gone::<MachineConfig>(FEATURES).await;
    wait_for_field(&fleet, GENERATED, "featureGates", Value::Null).await;
    delete(&fleet, "pods").await;
    fleet.stop().await;
}

// covers: KUB-14
async fn the_latency_profile_changes_one_step_at_a_time(server: Server) {
    let fleet = with_base(server, 0).await;
    let profile = |name: &str| [document("Node", &json!({"workerLatencyProfile": name}))];
    let frequency = async |value: &str| {
        wait_for_field(&fleet, NODE, "nodeStatusUpdateFrequency", json!(value)).await
    };
    set(&fleet, &profile("Default")).await;
    frequency("10s").await;
    set(&fleet, &profile("LowUpdateSlowReaction")).await;
    assert_eq!(
        fleet.event("ActionProhibited").await,
        "Skipping the Update Node event, name: cluster, transition not allowed from old \
         WorkerLatencyProfile: \"Default\" to new WorkerLatencyProfile: \"LowUpdateSlowReaction\""
    );
    let kept = fleet.all::<MachineConfig>().get(NODE).await.unwrap();
    assert_eq!(file(&kept, CONFIGURATION)["nodeStatusUpdateFrequency"], "10s");
    set(&fleet, &profile("MediumUpdateAverageReaction")).await;
    frequency("20s").await;
    set(&fleet, &profile("LowUpdateSlowReaction")).await;
    frequency("1m0s").await;
    fleet.stop().await;
}

// covers: KUB-13, KUB-20
async fn generated_configs_follow_the_profile_of_the_api_server(server: Server) {
    let fleet = with_base(server, 0).await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    wait_for_field(&fleet, GENERATED, "tlsMinVersion", json!("VersionTLS12")).await;
    let profile = json!({"tlsSecurityProfile": {"type": "Modern"}});
    set(&fleet, &[document("APIServer", &profile)]).await;
    wait_for_field(&fleet, GENERATED, "tlsMinVersion", json!("VersionTLS13")).await;
    let old = json!({"spec": {"tlsSecurityProfile": {"type": "Old"}}});
    fleet.patch::<KubeletConfig>("pods", old).await;
    wait_for_field(&fleet, GENERATED, "tlsMinVersion", json!("VersionTLS10")).await;
    delete(&fleet, "pods").await;
    fleet.stop().await;
}

async fn settings_that_cannot_be_read_change_nothing(server: Server) {
    let fleet = with_base(server, 0).await;
    fleet.create(&kubelet_config("pods", &json!({"maxPods": 100}))).await;
    wait_for_message(&fleet, "pods", "Success").await;
    set(&fleet, &["kind: [".to_owned()]).await;
    fleet
        .wait::<KubeletConfig>("pods", "names the ConfigMap", |config| {
            let conditions = config.status.clone().unwrap_or_default().conditions;
            let last = conditions.last().map(|last| last.message.clone()).unwrap_or_default();
            last.starts_with("Error: ConfigMap cluster-settings")
        })
        .await;
    let made = fleet.all::<MachineConfig>().get(GENERATED).await.unwrap();
    assert_eq!(file(&made, CONFIGURATION)["maxPods"], 100);
    maps(&fleet).delete(CONFIG_MAP, &DeleteParams::default()).await.unwrap();
    wait_for_message(&fleet, "pods", "Success").await;
    delete(&fleet, "pods").await;
    fleet.stop().await;
}

async fn settings_of_nodes_that_are_refused_are_an_event_and_change_nothing(server: Server) {
    let fleet = with_base(server, 0).await;
    let node = |mode: &str| [document("Node", &json!({"cgroupMode": mode}))];
    set(&fleet, &node("v2")).await;
    let before = fleet.wait::<MachineConfig>(NODE, "it is generated", |_| true).await;
    set(&fleet, &node("v3")).await;
    assert_eq!(
        fleet.event("NodeConfigFailed").await,
        "unknown cgroup mode found v3, failed to update the machine config resource"
    );
    let after = fleet.all::<MachineConfig>().get(NODE).await.unwrap();
    assert_eq!(after.resource_version(), before.resource_version());
    fleet.stop().await;
}
