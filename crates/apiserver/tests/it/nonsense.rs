//! Malformed requests: the server answers each with an error or an object and stays up.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use mco_apiserver::{ApiServer, Settings};
use serde_json::json;
use tower::ServiceExt as _;

fn bodies() -> Vec<Vec<u8>> {
    let values = [
        json!(null),
        json!([]),
        json!("x"),
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": []}),
        json!({"metadata": {"name": ["x"]}}),
        json!({"metadata": {"name": "x", "labels": [], "annotations": "y", "finalizers": {}}}),
        json!({"metadata": {"name": "x", "ownerReferences": {"uid": 1}, "managedFields": [1]}}),
        json!({"metadata": {"name": "x", "resourceVersion": 5}}),
        json!({"metadata": {"name": "x"}, "spec": [], "status": "z", "data": 1}),
        json!({"metadata": {"name": "x"}, "spec": {"versions": [null], "names": [], "group": 1}}),
        json!({"metadata": {"name": "x"}, "spec": {"containers": {"a": 1}, "template": 7}}),
        json!({"metadata": {"name": "x"}, "spec": {"selector": 3, "minAvailable": "many%"}}),
        json!({"$patch": "replace", "$retainKeys": 1, "$setElementOrder/x": [1]}),
        json!([{"op": "replace", "path": "", "value": 7}]),
        json!([{"op": "remove", "path": "/metadata"}]),
        json!([{"op": "move", "from": "/a/b", "path": "/c"}]),
    ];
    let mut out: Vec<Vec<u8>> = values.iter().map(|value| value.to_string().into_bytes()).collect();
    out.extend([Vec::new(), b"{".to_vec(), vec![0xff, 0xfe], "[".repeat(10_000).into_bytes()]);
    out
}

const PATHS: [&str; 12] = [
    "/api/v1/nodes",
    "/api/v1/nodes/x",
    "/api/v1/nodes/x/status",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/pods/x",
    "/api/v1/namespaces/default/pods/x/eviction",
    "/api/v1/namespaces/default/secrets/x?dryRun=All",
    "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
];

const QUERIES: [&str; 6] = [
    "labelSelector=%28",
    "fieldSelector=a%3D%3D%3Db",
    "limit=-1",
    "continue=%00",
    "resourceVersion=99999999999999999999",
    "labelSelector=a+in+%28%29&limit=1",
];

async fn send(api: &ApiServer, method: &Method, uri: &str, media: &str, body: Vec<u8>) -> u16 {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", media)
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    api.clone().oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn malformed_requests_are_answered() {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let node = json!({"metadata": {"name": "x"}}).to_string().into_bytes();
    send(&api, &Method::POST, "/api/v1/nodes", "application/json", node).await;
    let medias = [
        "application/json",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];
    for path in PATHS {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            for media in medias {
                for body in bodies() {
                    let code = send(&api, &method, path, media, body).await;
                    assert!(code < 500, "{method} {path} {media}: {code}");
                }
            }
        }
        for query in QUERIES {
            let uri = format!("{}?{query}", path.split('?').next().unwrap());
            let code = send(&api, &Method::GET, &uri, "", Vec::new()).await;
            assert!(code < 500 || query.contains("9999"), "{uri}: {code}");
        }
    }
    let alive = send(&api, &Method::GET, "/api/v1/namespaces/default", "", Vec::new()).await;
    assert_eq!(alive, 200);
}

#[tokio::test]
async fn the_largest_generation_does_not_end_the_server() {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let object =
        json!({"metadata": {"name": "a", "generation": i64::MAX, "finalizers": ["a.b/c"]}});
    let body = object.to_string().into_bytes();
    assert_eq!(send(&api, &Method::POST, maps, "application/json", body).await, 201);
    let object = format!("{maps}/a");
    assert_eq!(send(&api, &Method::DELETE, &object, "", Vec::new()).await, 200);
    assert_eq!(send(&api, &Method::GET, &object, "", Vec::new()).await, 200);
}
