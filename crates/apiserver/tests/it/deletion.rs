//! Deletions of namespaces: their content goes first, whatever happens to the client and the server.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_apiserver::{ApiServer, Settings};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::fixture::{client, refusal, soon};

/// Number of objects in the namespace.
const OBJECTS: usize = 100;

async fn send(api: &ApiServer, method: Method, uri: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body)));
    let response = api.clone().oneshot(request.unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn fill(path: &Path) -> ApiServer {
    let api = ApiServer::open(path, Settings::default()).await.unwrap();
    let namespace = json!({"metadata": {"name": "n"}});
    assert_eq!(send(&api, Method::POST, "/api/v1/namespaces", &namespace).await.0, 201);
    for number in 0..OBJECTS {
        let object = json!({"metadata": {"name": format!("c{number}")}});
        let uri = "/api/v1/namespaces/n/configmaps";
        assert_eq!(send(&api, Method::POST, uri, &object).await.0, 201);
    }
    api
}

/// Starts the delete of the namespace, and stops waiting at once.
async fn delete_and_leave(api: &ApiServer) {
    let delete = send(api, Method::DELETE, "/api/v1/namespaces/n", &Value::Null);
    let left = tokio::time::timeout(Duration::ZERO, delete).await;
    assert!(left.is_err(), "the delete takes longer than its first step");
}

async fn left(api: &ApiServer) -> usize {
    let (_, list) = send(api, Method::GET, "/api/v1/namespaces/n/configmaps", &Value::Null).await;
    list["items"].as_array().map_or(0, Vec::len)
}

async fn gone(api: &ApiServer) {
    let gone = async {
        while send(api, Method::GET, "/api/v1/namespaces/n", &Value::Null).await.0 != 404 {
            tokio::task::yield_now().await;
        }
    };
    soon("the namespace to be removed", gone).await;
    assert_eq!(left(api).await, 0);
}

#[tokio::test]
async fn a_namespace_is_deleted_even_if_its_client_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let api = fill(&dir.path().join("state")).await;
    delete_and_leave(&api).await;
    gone(&api).await;
}

#[test]
fn a_server_that_ends_during_a_delete_completes_it_at_its_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let first = tokio::runtime::Runtime::new().unwrap();
    first.block_on(async {
        let api = fill(&path).await;
        delete_and_leave(&api).await;
        let started = async {
            while left(&api).await == OBJECTS {
                tokio::task::yield_now().await;
            }
        };
        soon("the first object to be deleted", started).await;
    });
    // Ends the tasks of the server in the middle of their work.
    drop(first);
    let second = tokio::runtime::Runtime::new().unwrap();
    second.block_on(async {
        let api = ApiServer::open(&path, Settings::default()).await.unwrap();
        gone(&api).await;
    });
}

#[tokio::test]
async fn a_finalizer_of_an_object_holds_its_namespace() {
    let client = client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "n");
    let map = json!({"metadata": {"name": "c", "finalizers": ["a.b/c"]}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    let held = namespaces.get("n").await.unwrap();
    assert_eq!(held.status.unwrap().phase.as_deref(), Some("Terminating"));
    let new = serde_json::from_value(json!({"metadata": {"name": "d"}})).unwrap();
    let refused = refusal(maps.create(&PostParams::default(), &new).await);
    assert!(refused.1.contains("because it is being terminated"), "{}", refused.1);
    let release = json!({"metadata": {"finalizers": null}});
    maps.patch("c", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
    assert_eq!(refusal(namespaces.get("n").await).0, 404);
}
