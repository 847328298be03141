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
use mco_apiserver::{ApiServer, Controllers, Settings};
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

#[tokio::test]
async fn a_namespace_whose_last_finalizer_is_removed_is_removed() {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let namespace = json!({"metadata": {"name": "n", "finalizers": ["a.b/c"]}});
    assert_eq!(send(&api, Method::POST, "/api/v1/namespaces", &namespace).await.0, 201);
    send(&api, Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
    let (_, held) = send(&api, Method::GET, "/api/v1/namespaces/n", &Value::Null).await;
    assert_eq!(held["status"]["phase"], "Terminating");
    let mut released = held.clone();
    released["metadata"]["finalizers"] = Value::Null;
    assert_eq!(send(&api, Method::PUT, "/api/v1/namespaces/n", &released).await.0, 200);
    assert_eq!(send(&api, Method::GET, "/api/v1/namespaces/n", &Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_namespace_can_be_finalized() {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let namespace = json!({"metadata": {"name": "n"}, "spec": {"finalizers": ["a.b/c"]}});
    assert_eq!(send(&api, Method::POST, "/api/v1/namespaces", &namespace).await.0, 201);
    send(&api, Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
    let finalized = json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}});
    let (code, shown) = send(&api, Method::PUT, "/api/v1/namespaces/n", &finalized).await;
    assert_eq!((code, &shown["spec"]["finalizers"]), (200, &json!(["a.b/c", "kubernetes"])));
    let uri = "/api/v1/namespaces/n/finalize";
    assert_eq!(send(&api, Method::PUT, uri, &finalized).await.0, 200);
    assert_eq!(send(&api, Method::GET, "/api/v1/namespaces/n", &Value::Null).await.0, 404);
}

#[tokio::test]
async fn an_object_without_its_namespace_is_deleted_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let off = Settings { controllers: Controllers::Off, ..Settings::default() };
    let api = ApiServer::open(&path, off).await.unwrap();
    let namespace = json!({"metadata": {"name": "n"}});
    send(&api, Method::POST, "/api/v1/namespaces", &namespace).await;
    let object = json!({"metadata": {"name": "c"}});
    send(&api, Method::POST, "/api/v1/namespaces/n/configmaps", &object).await;
    send(&api, Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
    let uri = "/api/v1/namespaces/n/finalize";
    assert_eq!(send(&api, Method::PUT, uri, &namespace).await.0, 200);
    assert_eq!((send(&api, Method::GET, uri, &Value::Null).await.0, left(&api).await), (405, 1));
    drop(api);
    let api = ApiServer::open(&path, Settings::default()).await.unwrap();
    assert_eq!(left(&api).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creates_during_a_delete_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let api = ApiServer::open(&dir.path().join("state"), Settings::default()).await.unwrap();
    for round in 0..30 {
        let namespace = json!({"metadata": {"name": "n"}});
        assert_eq!(send(&api, Method::POST, "/api/v1/namespaces", &namespace).await.0, 201);
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let api = api.clone();
                tokio::spawn(async move {
                    for number in 0.. {
                        let name = format!("c{writer}-{number}");
                        let object = json!({"metadata": {"name": name}});
                        let uri = "/api/v1/namespaces/n/configmaps";
                        if send(&api, Method::POST, uri, &object).await.0 != 201 {
                            return;
                        }
                    }
                })
            })
            .collect();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        send(&api, Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
        for writer in writers {
            writer.await.unwrap();
        }
        gone(&api).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_ends_after_its_namespace_leaves_nothing() {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    // Reading and validating it takes longer than the deletion of the namespace.
    let object = json!({"metadata": {"name": "c"}, "data": {"k": "x".repeat(1_000_000)}});
    for round in 0..40 {
        let namespace = json!({"metadata": {"name": "n"}});
        assert_eq!(send(&api, Method::POST, "/api/v1/namespaces", &namespace).await.0, 201);
        let writer = {
            let (api, object) = (api.clone(), object.clone());
            tokio::spawn(async move {
                let uri = "/api/v1/namespaces/n/configmaps";
                send(&api, Method::POST, uri, &object).await
            })
        };
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(round) {
            tokio::task::yield_now().await;
        }
        send(&api, Method::DELETE, "/api/v1/namespaces/n", &Value::Null).await;
        writer.await.unwrap();
        gone(&api).await;
    }
}
