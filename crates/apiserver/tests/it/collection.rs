//! Garbage collection: owners and dependents, and definitions and their objects.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use mco_apiserver::{ApiServer, Settings};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fixture::soon;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Number of dependents of an owner.
const MANY: usize = 100;

pub(crate) async fn send(api: &ApiServer, method: &str, uri: &str, body: &Value) -> (u16, Value) {
    let (method, media) = match method {
        "MERGE" => (Method::PATCH, "application/merge-patch+json"),
        method => (method.parse().unwrap(), "application/json"),
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(uri).header("content-type", media);
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = api.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn server() -> ApiServer {
    ApiServer::in_memory(Settings::default()).await.unwrap()
}

async fn make(api: &ApiServer, name: &str, metadata: &Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["name"] = json!(name);
    let (code, made) = send(api, "POST", MAPS, &json!({"metadata": metadata})).await;
    assert_eq!(code, 201, "{made}");
    made
}

fn owned_by(owner: &Value, blocks: bool) -> Value {
    json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks}]})
}

async fn get(api: &ApiServer, name: &str) -> (u16, Value) {
    send(api, "GET", &format!("{MAPS}/{name}"), &Value::Null).await
}

async fn delete(api: &ApiServer, name: &str, policy: &str) -> (u16, Value) {
    let options = json!({"propagationPolicy": policy});
    send(api, "DELETE", &format!("{MAPS}/{name}"), &options).await
}

async fn release(api: &ApiServer, uri: &str) {
    let none = json!({"metadata": {"finalizers": null}});
    assert_eq!(send(api, "MERGE", uri, &none).await.0, 200);
}

#[tokio::test]
async fn a_foreground_deletion_waits_for_the_dependents_that_block_it() {
    let api = server().await;
    let owner = make(&api, "owner", &json!({})).await;
    let mut held = owned_by(&owner, true);
    held["finalizers"] = json!(["a.b/c"]);
    let middle = make(&api, "held", &held).await;
    make(&api, "below", &owned_by(&middle, true)).await;
    make(&api, "free", &owned_by(&owner, false)).await;

    let (code, marked) = delete(&api, "owner", "Foreground").await;
    assert_eq!(code, 200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(get(&api, "owner").await.0, 200, "a dependent holds it");
    let held = get(&api, "held").await.1;
    assert_eq!(held["metadata"]["finalizers"], json!(["a.b/c"]), "its own dependent is gone");
    assert_eq!(get(&api, "below").await.0, 404);
    assert_eq!(get(&api, "free").await.0, 404);

    release(&api, &format!("{MAPS}/held")).await;
    assert_eq!(get(&api, "held").await.0, 404);
    assert_eq!(get(&api, "owner").await.0, 404);
}

#[tokio::test]
async fn an_orphaning_deletion_leaves_the_dependents_without_their_owner() {
    let api = server().await;
    let owner = make(&api, "owner", &json!({})).await;
    make(&api, "child", &owned_by(&owner, true)).await;
    let (_, marked) = delete(&api, "owner", "Orphan").await;
    assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(get(&api, "owner").await.0, 404);
    let (code, child) = get(&api, "child").await;
    assert_eq!((code, &child["metadata"]["ownerReferences"]), (200, &Value::Null));
}

#[tokio::test]
async fn a_dependent_of_a_dead_owner_is_collected() {
    let api = server().await;
    let owner = make(&api, "owner", &json!({})).await;
    delete(&api, "owner", "Background").await;
    make(&api, "late", &owned_by(&owner, false)).await;
    assert_eq!(get(&api, "late").await.0, 404);
    // A new object of the same name is another owner.
    make(&api, "owner", &json!({})).await;
    make(&api, "later", &owned_by(&owner, false)).await;
    assert_eq!(get(&api, "later").await.0, 404);
    // An owner that no server made, or of another kind, may exist elsewhere.
    for (kind, uid) in [("ConfigMap", json!("u-1")), ("Cheese", owner["metadata"]["uid"].clone())] {
        let reference = json!({"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid});
        make(&api, kind.to_lowercase().as_str(), &json!({"ownerReferences": [reference]})).await;
        assert_eq!(get(&api, kind.to_lowercase().as_str()).await.0, 200);
    }
}

/// Number of objects in a chain of owners, and of dependents of one owner.
const MANY_MORE: usize = 3_000;

#[tokio::test]
async fn a_long_chain_of_owners_is_deleted() {
    let api = server().await;
    let first = make(&api, "first", &json!({})).await;
    let mut owner = first;
    for number in 0..MANY_MORE {
        owner = make(&api, &format!("c{number}"), &owned_by(&owner, true)).await;
    }
    assert_eq!(delete(&api, "first", "Background").await.0, 200);
    let (_, list) = send(&api, "GET", MAPS, &Value::Null).await;
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn many_dependents_are_deleted_before_their_owner() {
    let api = server().await;
    let owner = make(&api, "owner", &json!({})).await;
    for number in 0..MANY_MORE {
        make(&api, &format!("c{number}"), &owned_by(&owner, true)).await;
    }
    assert_eq!(delete(&api, "owner", "Foreground").await.0, 200);
    let (_, list) = send(&api, "GET", MAPS, &Value::Null).await;
    assert_eq!(list["items"], json!([]));
}

#[test]
fn a_cascade_is_completed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let left = async |api: &ApiServer| {
        let (_, list) = send(api, "GET", MAPS, &Value::Null).await;
        list["items"].as_array().unwrap().len()
    };
    let first = tokio::runtime::Runtime::new().unwrap();
    first.block_on(async {
        let api = ApiServer::open(&path, Settings::default()).await.unwrap();
        let owner = make(&api, "owner", &json!({})).await;
        for number in 0..MANY {
            make(&api, &format!("c{number}"), &owned_by(&owner, true)).await;
        }
        let delete = delete(&api, "owner", "Background");
        let waited = tokio::time::timeout(std::time::Duration::ZERO, delete).await;
        assert!(waited.is_err(), "the delete takes longer than its first step");
        let started = async {
            while left(&api).await > MANY - 1 {
                tokio::task::yield_now().await;
            }
        };
        soon("the first dependent to be deleted", started).await;
    });
    // Ends the tasks of the server in the middle of their work.
    drop(first);
    let second = tokio::runtime::Runtime::new().unwrap();
    second.block_on(async {
        let api = ApiServer::open(&path, Settings::default()).await.unwrap();
        assert_eq!(left(&api).await, 0);
    });
}

#[tokio::test]
async fn a_definition_is_removed_after_its_objects() {
    let api = server().await;
    let names = json!({"plural": "things", "kind": "Thing"});
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({"metadata": {"name": "things.a.io"}, "spec": {"group": "a.io",
        "scope": "Cluster", "names": names, "versions": [version]}});
    assert_eq!(send(&api, "POST", CRDS, &definition).await.0, 201);
    let things = "/apis/a.io/v1/things";
    let thing = |name: &str, finalizers: Value| {
        json!({"apiVersion": "a.io/v1", "kind": "Thing",
            "metadata": {"name": name, "finalizers": finalizers}})
    };
    assert_eq!(send(&api, "POST", things, &thing("a", json!(["a.b/c"]))).await.0, 201);
    assert_eq!(send(&api, "POST", things, &thing("b", json!([]))).await.0, 201);

    let uri = format!("{CRDS}/things.a.io");
    let (code, marked) = send(&api, "DELETE", &uri, &Value::Null).await;
    let finalizer = "customresourcecleanup.apiextensions.k8s.io";
    assert_eq!((code, &marked["metadata"]["finalizers"]), (200, &json!([finalizer])));
    assert_eq!(send(&api, "GET", &uri, &Value::Null).await.0, 200, "an object holds it");
    assert_eq!(send(&api, "GET", &format!("{things}/b"), &Value::Null).await.0, 404);
    let (code, refused) = send(&api, "POST", things, &thing("c", json!([]))).await;
    assert_eq!(
        (code, refused["message"].as_str().unwrap()),
        (
            403,
            "things.a.io \"c\" is forbidden: create not allowed while custom resource definition is \
             terminating"
        )
    );
    release(&api, &format!("{things}/a")).await;
    assert_eq!(send(&api, "GET", &uri, &Value::Null).await.0, 404);
    assert_eq!(send(&api, "GET", things, &Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_namespace_says_what_holds_it() {
    let api = server().await;
    let namespace = json!({"metadata": {"name": "n"}});
    assert_eq!(send(&api, "POST", "/api/v1/namespaces", &namespace).await.0, 201);
    let maps = "/api/v1/namespaces/n/configmaps";
    for (name, finalizers) in [("a", json!(["x.y/z"])), ("b", json!(["x.y/z"])), ("c", json!([]))] {
        let map = json!({"metadata": {"name": name, "finalizers": finalizers}});
        assert_eq!(send(&api, "POST", maps, &map).await.0, 201);
    }
    send(&api, "DELETE", "/api/v1/namespaces/n", &Value::Null).await;
    let condition = async |kind: &str| {
        let (_, found) = send(&api, "GET", "/api/v1/namespaces/n", &Value::Null).await;
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let one = conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default();
        (one["status"].clone(), one["message"].clone())
    };
    assert_eq!(
        condition("NamespaceContentRemaining").await,
        (
            json!("True"),
            json!("Some resources are remaining: configmaps. has 2 resource instances")
        )
    );
    assert_eq!(
        condition("NamespaceFinalizersRemaining").await.1,
        "Some content in the namespace has finalizers remaining: x.y/z in 2 resource instances"
    );
    release(&api, &format!("{maps}/a")).await;
    let message = condition("NamespaceContentRemaining").await.1;
    assert_eq!(message, "Some resources are remaining: configmaps. has 1 resource instances");
    // A change of the namespace does not end it.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(send(&api, "MERGE", "/api/v1/namespaces/n", &label).await.0, 200);
    assert_eq!(send(&api, "GET", "/api/v1/namespaces/n", &Value::Null).await.0, 200);
    release(&api, &format!("{maps}/b")).await;
    assert_eq!(send(&api, "GET", "/api/v1/namespaces/n", &Value::Null).await.0, 404);
}
