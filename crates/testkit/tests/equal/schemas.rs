//! The `OpenAPI` schemas of both servers are the same, but for the difference `schemas`.

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Map, Value};

use crate::{answer, answer::Answer, servers::Servers};

/// Marks that the embedded server leaves out.
const UNSEEN: [&str; 2] = ["x-kubernetes-unions", "x-kubernetes-validations"];

/// Returns the schemas that differ.
pub(crate) async fn compare(servers: &Servers) -> Vec<String> {
    let index = fetch(&servers.embedded, "/openapi/v3").await;
    let paths = index["paths"].as_object().expect("an index of documents");
    let mut findings = Vec::new();
    for group in paths.keys().filter(|group| is_built_in(group)) {
        let path = format!("/openapi/v3/{group}");
        let (ours, theirs) =
            tokio::join!(fetch(&servers.embedded, &path), fetch(&servers.real, &path));
        let of = |document: &Value| document["components"]["schemas"].clone();
        let (ours, theirs) = (of(&ours), of(&theirs));
        for (name, schema) in ours.as_object().expect("schemas by name") {
            let mut theirs = theirs[name].clone();
            // Options belong to the groups of all resources.
            if name.ends_with("Options")
                && let Some(map) = theirs.as_object_mut()
            {
                map.remove("x-kubernetes-group-version-kind");
            }
            let mut found = Vec::new();
            answer::compare(&plain(schema), &plain(&theirs), &mut found);
            findings.extend(found.iter().map(|one| format!("{group} {name}{one}")));
        }
    }
    findings
}

/// Returns true for the groups of Kubernetes.
fn is_built_in(group: &str) -> bool {
    const SHORT: [&str; 4] = ["api/v1", "apis/apps/v1", "apis/batch/v1", "apis/policy/v1"];
    SHORT.contains(&group) || group.contains(".k8s.io/")
}

async fn fetch(client: &Client, path: &str) -> Value {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    let response = client.send(request).await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let bytes = response.into_body().collect().await.expect("a complete answer").to_bytes();
    serde_json::from_slice(&bytes).expect("a document")
}

fn plain(schema: &Value) -> Answer {
    Answer { code: 200, headers: std::collections::BTreeMap::new(), body: undescribed(schema) }
}

fn undescribed(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let is_left_out = |key: &str, value: &Value| {
                UNSEEN.contains(&key) || (key == "description" && value.is_string())
            };
            let kept = map.iter().filter(|(key, value)| !is_left_out(key, value));
            let out: Map<String, Value> =
                kept.map(|(key, value)| (key.clone(), undescribed(value))).collect();
            // A reference alone and one beside nothing are the same.
            if let Some(Value::Array(all)) = out.get("allOf")
                && let ([only], 1) = (all.as_slice(), out.len())
            {
                return only.clone();
            }
            out.into()
        }
        Value::Array(list) => list.iter().map(undescribed).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
