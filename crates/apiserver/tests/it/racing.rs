//! Requests that create the same object at the same time.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use mco_apiserver::{ApiServer, Settings};
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// Number of rounds, and of requests in each.
const ROUNDS: usize = 20;
const REQUESTS: usize = 8;

/// Sends the same request several times at once. Returns the codes of the answers.
async fn race(
    api: &ApiServer,
    method: &str,
    media: &str,
    uri: &str,
    body: &Value,
) -> BTreeSet<u16> {
    let requests: Vec<_> = (0..REQUESTS)
        .map(|number| {
            let request = Request::builder().method(method).header("content-type", media);
            let request = request.uri(format!("{uri}?fieldManager=m{number}"));
            let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
            tokio::spawn(api.clone().oneshot(request))
        })
        .collect();
    let mut codes = BTreeSet::new();
    for request in requests {
        codes.insert(request.await.unwrap().unwrap().status().as_u16());
    }
    codes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writes_one_creates_and_the_others_update() {
    let dir = tempfile::tempdir().unwrap();
    let api = ApiServer::open(&dir.path().join("state"), Settings::default()).await.unwrap();
    for round in 0..ROUNDS {
        let name = format!("a{round}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let uri = format!("/api/v1/namespaces/default/configmaps/{name}");
        let codes = race(&api, "PATCH", "application/apply-patch+yaml", &uri, &map).await;
        assert_eq!(codes, BTreeSet::from([200, 201]), "apply");
        let role = json!({"metadata": {"name": name}, "rules": []});
        let base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
        let codes = race(&api, "PUT", "application/json", &format!("{base}/{name}"), &role).await;
        assert_eq!(codes, BTreeSet::from([200, 201]), "put");
    }
}
