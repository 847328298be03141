//! The CRDs of `mco`: they install, and they validate objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::fixture::{client, refusal};

async fn with_crds() -> Client {
    let client = client().await;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in mco_api::crds() {
        let made = api.create(&PostParams::default(), &crd).await;
        let made = made.unwrap_or_else(|error| panic!("{}: {error}", crd.name_any()));
        let conditions = made.status.unwrap().conditions.unwrap();
        assert!(conditions.iter().any(|one| one.type_ == "Established" && one.status == "True"));
    }
    client
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let group = "machineconfiguration.openshift.io";
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
}

fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": kind, "metadata": {"name": name}, "spec": spec}))
    .unwrap()
}

async fn create(client: &Client, kind: &str, name: &str, spec: Value) -> Result<(), String> {
    let made = api(client, kind).create(&PostParams::default(), &object(kind, name, &spec)).await;
    match made {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn our_definitions_install_and_validate() {
    let client = with_crds().await;
    let config = json!({"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": []}}});
    create(&client, "MachineConfig", "50-a", config).await.unwrap();
    let kept = api(&client, "MachineConfig").get("50-a").await.unwrap();
    assert_eq!(kept.data["spec"]["config"]["ignition"]["version"], "3.4.0");

    let pool =
        json!({"machineConfigSelector": {"matchLabels": {"a": "b"}}, "maxUnavailable": "10%"});
    create(&client, "MachineConfigPool", "worker", pool).await.unwrap();
    let pool = json!({"maxUnavailable": true});
    let refused = create(&client, "MachineConfigPool", "bad", pool).await.unwrap_err();
    assert!(refused.contains("spec.maxUnavailable"), "{refused}");

    let node = json!({"pool": {"name": "worker"}, "node": {"name": "n"},
        "configVersion": {"desired": "rendered-worker-1"}});
    create(&client, "MachineConfigNode", "n", node.clone()).await.unwrap();
    let refused = create(&client, "MachineConfigNode", "other", node).await.unwrap_err();
    assert!(refused.contains("is invalid"), "{refused}");

    let kubelet = json!({"logLevel": "loud"});
    let refused = create(&client, "KubeletConfig", "bad", kubelet).await.unwrap_err();
    assert!(refused.contains("spec.logLevel in body must be of type integer"), "{refused}");
}

#[tokio::test]
async fn unknown_fields_are_dropped_or_rejected_on_request() {
    let client = with_crds().await;
    let spec = json!({"paused": true, "nonsense": 1});
    create(&client, "MachineConfigPool", "p", spec.clone()).await.unwrap();
    let kept = api(&client, "MachineConfigPool").get("p").await.unwrap();
    assert_eq!(kept.data["spec"].get("nonsense"), None);
    let body = serde_json::to_vec(&object("MachineConfigPool", "q", &spec)).unwrap();
    let uri =
        "/apis/machineconfiguration.openshift.io/v1/machineconfigpools?fieldValidation=Strict";
    let request = http::Request::post(uri).body(body).unwrap();
    let (code, message) = refusal(client.request::<Value>(request).await);
    assert_eq!(code, 400);
    assert!(
        message.ends_with("strict decoding error: unknown field \"spec.nonsense\""),
        "{message}"
    );
}

#[tokio::test]
async fn metadata_of_the_wrong_type_is_refused() {
    let client = with_crds().await;
    for (field, value) in [
        ("finalizers", json!("oops")),
        ("labels", json!({"a": 1})),
        ("ownerReferences", json!({})),
        ("generation", json!("x")),
    ] {
        let mut pool = serde_json::to_value(object("MachineConfigPool", "p", &json!({}))).unwrap();
        pool["metadata"][field] = value;
        let uri = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
        let request = http::Request::post(uri).body(serde_json::to_vec(&pool).unwrap()).unwrap();
        let (code, message) = refusal(client.request::<Value>(request).await);
        assert_eq!(code, 400, "{field}");
        assert!(message.contains("cannot unmarshal"), "{message}");
    }
    let pools = api(&client, "MachineConfigPool").list(&kube::api::ListParams::default()).await;
    assert!(pools.unwrap().items.is_empty());
}

#[tokio::test]
async fn custom_status_is_a_subresource_and_generation_counts_the_spec() {
    let client = with_crds().await;
    create(&client, "MachineConfigPool", "p", json!({"paused": false})).await.unwrap();
    let pools = api(&client, "MachineConfigPool");
    let params = PatchParams::default();
    let status = json!({"spec": {"paused": true}, "status": {"machineCount": 3}});
    let after = pools.patch_status("p", &params, &Patch::Merge(&status)).await.unwrap();
    assert_eq!(after.data["status"]["machineCount"], 3);
    assert_eq!(after.data["spec"]["paused"], false);
    assert_eq!(after.metadata.generation, Some(1));
    let spec = json!({"spec": {"paused": true}});
    let after = pools.patch("p", &params, &Patch::Merge(&spec)).await.unwrap();
    assert_eq!(after.metadata.generation, Some(2));
    assert_eq!(after.data["status"]["machineCount"], 3);
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let client = with_crds().await;
    create(&client, "MachineConfigPool", "p", json!({})).await.unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "machineconfigpools.machineconfiguration.openshift.io";
    crds.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
    let gone = refusal(api(&client, "MachineConfigPool").get("p").await);
    assert_eq!((gone.0, gone.1.trim_end()), (404, "404 page not found"));
}

#[tokio::test]
async fn a_definition_does_not_take_the_objects_of_a_built_in_kind() {
    let client = client().await;
    let body = json!({"metadata": {"name": "a"}}).to_string().into_bytes();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    client.request::<Value>(http::Request::post(leases).body(body).unwrap()).await.unwrap();
    let define = |group: &str, plural: &str, annotations: Value| {
        let name = format!("{plural}.{group}");
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"group": group,
            "scope": "Namespaced", "names": {"plural": plural, "kind": "Thing"},
            "versions": [{"name": "v2", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let send = async |definition: Value| {
        let request = http::Request::post(crds).body(definition.to_string().into_bytes()).unwrap();
        client.request::<Value>(request).await
    };
    assert_eq!(refusal(send(define("apps", "deployments", json!({}))).await).0, 422);
    assert_eq!(refusal(send(define("coordination.k8s.io", "leases", json!({}))).await).0, 422);
    let approved = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    send(define("coordination.k8s.io", "leases", approved)).await.unwrap();
    let other = "/apis/coordination.k8s.io/v2/namespaces/default/leases";
    let listed = client.request::<Value>(http::Request::get(other).body(vec![]).unwrap()).await;
    assert_eq!(refusal(listed).0, 404);
    let definition = format!("{crds}/leases.coordination.k8s.io");
    let request = http::Request::delete(&definition).body(vec![]).unwrap();
    client.request::<Value>(request).await.unwrap();
    let gone = client.request::<Value>(http::Request::get(&definition).body(vec![]).unwrap()).await;
    assert_eq!(refusal(gone).0, 404);
    let left = client.request::<Value>(http::Request::get(leases).body(vec![]).unwrap()).await;
    assert_eq!(left.unwrap()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn only_lists_and_watches_reach_over_all_namespaces() {
    let client = client().await;
    let body = json!({"metadata": {"name": "a"}}).to_string().into_bytes();
    let configmaps = "/api/v1/namespaces/default/configmaps";
    client.request::<Value>(http::Request::post(configmaps).body(body).unwrap()).await.unwrap();
    let request = http::Request::delete("/api/v1/configmaps").body(vec![]).unwrap();
    assert_eq!(refusal(client.request::<Value>(request).await).0, 405);
    let request = http::Request::get(format!("{configmaps}/a")).body(vec![]).unwrap();
    client.request::<Value>(request).await.unwrap();
}
