//! Tests of the operator in a cluster in which others write too.

use std::path::Path;

use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ConfigMap, Namespace},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::conditions,
};
use mco_api::{ControllerConfig, MachineConfigPool, annotation, label};
use mco_operator::RootCa;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    operands::cluster::Cluster,
    support::{Operator, cluster, condition, config, wait, wait_for},
};

const POOLS: &str = "machineconfigpools.machineconfiguration.openshift.io";
const NODES: &str = "machineconfignodes.machineconfiguration.openshift.io";
const OPERATORS: &str = "clusteroperators.config.openshift.io";

async fn merge<K>(api: &Api<K>, name: &str, patch: Value) -> K
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn installed(client: &Client) {
    wait(client, "Progressing is true", |o| condition(o, "Progressing").starts_with("True")).await;
}

async fn create_namespace(client: &Client) {
    let namespaces = Api::<Namespace>::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": label::NAMESPACE}})).await;
}

#[tokio::test]
async fn a_given_profile_is_enforced_and_otherwise_that_of_the_administrator_stays() {
    let client = cluster().await;
    let configs = Api::<ControllerConfig>::all(client.clone());
    let (name, key) = (label::CONTROLLER_CONFIG, annotation::PROFILE.name());
    let is = |profile: &'static str| {
        move |found: Option<&ControllerConfig>| {
            found.is_some_and(|found| found.annotations().get(key).is_some_and(|it| it == profile))
        }
    };
    let mut given = config("v1", "4.20.0");
    given.profile = Some("full".into());
    given.image = "registry.test/mco:1".to_owned();
    let operator = Operator::start(&client, &given);
    installed(&client).await;
    let made = wait_for(&configs, name, "the profile is set", is("full")).await.unwrap();
    assert_eq!(json!(made.spec.images), json!({"machineConfigOperator": "registry.test/mco:1"}));
    merge(&configs, name, json!({"metadata": {"annotations": {key: "adopt"}}})).await;
    wait_for(&configs, name, "the profile is enforced", is("full")).await;
    operator.stop().await;

    merge(&configs, name, json!({"metadata": {"annotations": {key: "adopt"}}})).await;
    let operator = Operator::start(&client, &config("v2", "4.21.0"));
    let by = annotation::GENERATED_BY_VERSION.name();
    let is_new = |found: Option<&ControllerConfig>| {
        found.is_some_and(|found| found.annotations().get(by).is_some_and(|it| it == "v2"))
    };
    let found = wait_for(&configs, name, "the new build is known", is_new).await;
    assert_eq!(found.unwrap().annotations().get(key).map(String::as_str), Some("adopt"));
    operator.stop().await;
}

#[tokio::test]
async fn a_failing_template_controller_degrades_the_operator() {
    let client = cluster().await;
    let operator = Operator::start(&client, &config("v1", "4.20.0"));
    installed(&client).await;
    let configs = Api::<ControllerConfig>::all(client.clone());
    let failing = |status: &str| {
        json!({"status": {"conditions": [{
            "type": "TemplateControllerFailing", "status": status, "message": "no platform",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]}})
    };
    let set = async |status: &str| {
        let patch = Patch::Merge(failing(status));
        let params = PatchParams::default();
        configs.patch_status(label::CONTROLLER_CONFIG, &params, &patch).await.unwrap();
    };
    set("True").await;
    let found = wait(&client, "Degraded is true", |o| condition(o, "Degraded").starts_with("True"));
    let text = condition(&found.await, "Degraded");
    assert!(text.contains("MachineConfigController") && text.contains("no platform"), "{text}");
    set("False").await;
    wait(&client, "Degraded is false", |o| condition(o, "Degraded").starts_with("False")).await;
    operator.stop().await;
}

async fn wait_for_ca(client: &Client, ca: &str) {
    let configs = Api::<ControllerConfig>::all(client.clone());
    let has_ca = |found: Option<&ControllerConfig>| {
        found.is_some_and(|found| {
            found.spec.root_ca_data.as_slice() == ca.as_bytes()
                && found.spec.kube_api_server_serving_ca_data.as_slice() == ca.as_bytes()
        })
    };
    let what = format!("the ControllerConfig has the CA {ca:?}");
    wait_for(&configs, label::CONTROLLER_CONFIG, &what, has_ca).await;
}

#[tokio::test]
async fn a_ca_that_is_rotated_in_the_cluster_reaches_the_controller_config() {
    let client = cluster().await;
    create_namespace(&client).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), label::NAMESPACE);
    let name = "kube-root-ca.crt";
    create(&maps, json!({"metadata": {"name": name}, "data": {"ca.crt": "first"}})).await;
    let mut config = config("v1", "4.20.0");
    config.root_ca = RootCa::Cluster;
    let operator = Operator::start(&client, &config);
    installed(&client).await;
    wait_for_ca(&client, "first").await;
    merge(&maps, name, json!({"data": {"ca.crt": "second"}})).await;
    wait_for_ca(&client, "second").await;
    operator.stop().await;
}

/// Writes a CA file, and returns its contents.
#[expect(clippy::disallowed_methods, reason = "the test writes the files of a kubeconfig")]
fn write_ca(folder: &Path, certificates: &[&str]) -> String {
    let pem =
        |text: &&str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let text: String = certificates.iter().map(pem).collect();
    std::fs::write(folder.join("ca.crt"), &text).unwrap();
    text
}

#[tokio::test(start_paused = true)]
#[expect(clippy::disallowed_methods, reason = "the test writes the files of a kubeconfig")]
async fn a_rotated_ca_file_of_a_kubeconfig_reaches_the_controller_config() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {
            "server": "https://127.0.0.1:1", "certificate-authority": "ca.crt",
        }}],
        "users": [{"name": "a", "user": {}}],
    });
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let client = cluster().await;
    let mut config = config("v1", "4.20.0");
    config.root_ca = RootCa::Connection(Some(path));
    let old = write_ca(folder.path(), &["b2xk"]);
    let operator = Operator::start(&client, &config);
    installed(&client).await;
    wait_for_ca(&client, &old).await;
    let both = write_ca(folder.path(), &["b2xk", "bmV3"]);
    wait_for_ca(&client, &both).await;
    operator.stop().await;
}

/// Each definition comes back, that of the ClusterOperator too, which the operator itself is reported in.
async fn deleted_definitions_come_back(cluster: &Cluster) {
    let client = &cluster.admin;
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    installed(client).await;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for name in [NODES, OPERATORS] {
        let before = definitions.get(name).await.unwrap();
        definitions.delete(name, &DeleteParams::default()).await.unwrap();
        let is_back = |found: Option<&CustomResourceDefinition>| {
            let is_new = found.is_some_and(|found| found.uid() != before.uid());
            let is_established = conditions::is_crd_established();
            is_new && conditions::Condition::matches_object(&is_established, found)
        };
        wait_for(&definitions, name, "the definition comes back", is_back).await;
    }
    installed(client).await;
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0], "the operator has all rights that it needs");
}

#[tokio::test]
async fn deleted_definitions_come_back_on_the_embedded_api_server() {
    deleted_definitions_come_back(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn deleted_definitions_come_back_on_a_real_kube_apiserver() {
    let Some(cluster) = Cluster::real().await else { return };
    deleted_definitions_come_back(&cluster).await;
}

/// Changes the description of a definition as another manager.
async fn take_over(client: &Client, name: &str, manager: &str, annotations: Value) {
    let mut all = mco_api::crds().into_iter();
    let mut definition = json!(all.find(|it| it.name_any() == name).unwrap());
    definition["metadata"]["annotations"] = annotations;
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["description"] = json!("of another owner");
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let params = PatchParams::apply(manager);
    api.patch(name, &params, &Patch::Apply(definition)).await.unwrap();
}

#[tokio::test]
async fn definitions_of_other_owners_are_left() {
    let client = cluster().await;
    let release = json!({"include.release.openshift.io/self-managed-high-availability": "true"});
    take_over(&client, OPERATORS, "cluster-version-operator", release).await;
    take_over(&client, POOLS, "argocd", json!({})).await;
    let operator = Operator::start(&client, &config("v1", "4.20.0"));
    installed(&client).await;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for name in [OPERATORS, POOLS] {
        let found = definitions.get(name).await.unwrap();
        let schema = json!(found.spec.versions[0].schema);
        assert_eq!(schema["openAPIV3Schema"]["description"], "of another owner", "{name}");
        assert_eq!(found.managed_fields().iter().filter(|it| it.subresource.is_none()).count(), 1);
    }
    let pools = Api::<MachineConfigPool>::all(client.clone());
    assert!(pools.get("worker").await.is_ok(), "the kinds are used");
    operator.stop().await;
}

fn lease(transitions: i32) -> Value {
    json!({
        "metadata": {"name": "machine-config-controller"},
        "spec": {"holderIdentity": "c_1", "leaseDurationSeconds": 15, "leaseTransitions": transitions},
    })
}

// covers: O28
#[tokio::test(start_paused = true)]
async fn the_cluster_is_not_available_while_the_controller_is_silent() {
    let client = cluster().await;
    create_namespace(&client).await;
    let leases = Api::<Lease>::namespaced(client.clone(), label::NAMESPACE);
    create(&leases, lease(0)).await;
    let operator = Operator::start(&client, &config("v1", "4.20.0"));
    let available = |o: &mco_api::ClusterOperator| condition(o, "Available");
    wait(&client, "Available is true", |o| available(o).starts_with("True AsExpected")).await;
    let found = wait(&client, "Available is false", |o| available(o).starts_with("False")).await;
    assert_eq!(
        available(&found),
        "False MachineConfigControllerNotRunning: Cluster not available for [{operator 4.20.0} \
         {operator-image }]: the controller is not running: c_1 has not renewed the Lease \
         openshift-machine-config-operator/machine-config-controller for 30s"
    );
    merge(&leases, "machine-config-controller", lease(1)).await;
    wait(&client, "Available is true again", |o| available(o).starts_with("True")).await;
    operator.stop().await;
}
