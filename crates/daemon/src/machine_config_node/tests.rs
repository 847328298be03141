//! The status writer against an API server whose history went back.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::*;

fn object(version: u64, reason: &str) -> Value {
    json!({
        "apiVersion": MachineConfigNode::api_version(&()), "kind": "MachineConfigNode",
        "metadata": {"name": "worker-0", "uid": "u", "resourceVersion": version.to_string()},
        "spec": {"node": {"name": "worker-0"}, "pool": {"name": "worker"},
            "configVersion": {"desired": "b"}, "configImage": {"desiredImage": ""}},
        "status": {"conditions": [{"type": "Updated", "status": "False", "reason": reason,
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

fn parsed(object: Value) -> MachineConfigNode {
    serde_json::from_value(object).unwrap()
}

/// Returns a client of an API server that has one object of `version`, and the writes that it accepted.
/// A write with another version is refused with a conflict.
fn server(version: u64) -> (Client, Arc<Mutex<Vec<Value>>>) {
    let writes: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = writes.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let (parts, body) = request.into_parts();
            if parts.method == Method::GET {
                return Ok::<_, Infallible>(answer(200, &object(version, "Old")));
            }
            let body = body.collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let known = version + u64::try_from(log.lock().unwrap().len()).unwrap();
            let known_text = known.to_string();
            if body["metadata"]["resourceVersion"] != known_text.as_str() {
                let status = json!({"kind": "Status", "status": "Failure", "code": 409,
                    "reason": "Conflict", "message": "the object has been modified"});
                return Ok(answer(409, &status));
            }
            let mut after = object(known + 1, "New");
            after["status"] = body["status"].clone();
            log.lock().unwrap().push(body);
            Ok(answer(200, &after))
        }
    });
    (Client::new(service, "default"), writes)
}

fn answer(code: u16, body: &Value) -> Response<Body> {
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}

fn up_to_date() -> StatusUpdate {
    let change = StatusChange::Event(UpdateEvent::UpToDate);
    StatusUpdate { change, current: "b".to_owned(), desired: "b".to_owned() }
}

/// Runs a writer that has written `UpToDate` and knows version 100, until the server has a write.
async fn run(writer_sees: Option<MachineConfigNode>, update: Option<StatusUpdate>) -> Value {
    let (client, accepted) = server(50);
    let (sender, observed) = watch::channel(None);
    let mut queue = UpdateQueue::default();
    queue.push(up_to_date());
    queue.mark_written();
    let writer = StatusWriter {
        api: Api::all(client),
        node: "worker-0".parse().unwrap(),
        clock: Clock::System,
        known: Some(parsed(object(100, "Known"))),
        queue,
        failures: 0,
        flushes: Vec::new(),
        behind_since: None,
    };
    let (updates, receiver) = channel();
    let running = tokio::spawn(writer.run(receiver.0, observed));
    if writer_sees.is_some() {
        sender.send_replace(writer_sees);
    }
    if let Some(update) = update {
        updates.send(update);
    }
    let written = async {
        while accepted.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(5), written).await.expect("no write was accepted");
    running.abort();
    accepted.lock().unwrap()[0].clone()
}

fn is_updated(write: &Value) -> bool {
    let conditions = write["status"]["conditions"].as_array().unwrap();
    conditions.iter().any(|it| it["type"] == "Updated" && it["status"] == "True")
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_again_if_the_watch_stays_at_an_older_version() {
    let write = run(Some(parsed(object(50, "Old"))), None).await;
    assert!(is_updated(&write), "{write}");
}

#[tokio::test(start_paused = true)]
async fn a_write_after_a_restore_is_built_from_the_restored_version() {
    let write = run(None, Some(StatusUpdate { current: "a".to_owned(), ..up_to_date() })).await;
    assert_eq!(write["metadata"]["resourceVersion"], "50");
    assert!(is_updated(&write), "{write}");
}
