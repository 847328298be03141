//! Logs of containers, and commands in them.

use std::sync::Arc;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use mco_apiserver::{FixedClock, Kubelets, Log, Settings};
use serde_json::{Value, json};

use crate::fixture::{client_of, refusal, soon};

/// Kubelets that have one log, of the container `main`.
struct OneLog(Arc<Log>);

impl Kubelets for OneLog {
    fn log(&self, _: &Value, container: &str) -> Option<Arc<Log>> {
        (container == "main").then(|| Arc::clone(&self.0))
    }

    fn refusal(&self, pod: &Value) -> String {
        format!("{} is simulated", pod["metadata"]["name"])
    }
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// Returns a client of a server with the pods `one` and `two`, at second 100, and the log of the
/// container `main`: a line at second 0, and one at second 90.
async fn cluster() -> (Client, Arc<Log>) {
    let log = Arc::new(Log::default());
    log.append(time(0), "first");
    log.append(time(90), "second");
    let settings = Settings {
        clock: Arc::new(FixedClock(time(100))),
        kubelets: Some(Arc::new(OneLog(Arc::clone(&log)))),
        ..Settings::default()
    };
    let client = client_of(settings).await;
    let container = |name: &str| json!({"name": name, "image": "i"});
    for (name, containers) in
        [("one", vec![container("main")]), ("two", vec![container("main"), container("other")])]
    {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": containers, "initContainers": [container("init")]}});
        let request = Request::post("/api/v1/namespaces/default/pods");
        let request = request.header("Content-Type", "application/json");
        let request = request.body(pod.to_string().into_bytes()).unwrap();
        let _: Value = client.request(request).await.unwrap();
    }
    (client, log)
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(format!("/api/v1/namespaces/default/pods/{path}")).body(Vec::new()).unwrap()
}

#[tokio::test]
async fn the_lines_of_a_container_are_selected_as_kubectl_asks() {
    let (client, _) = cluster().await;
    for (query, want) in [
        ("", "first\nsecond\n"),
        ("?container=main&tailLines=1", "second\n"),
        ("?tailLines=0", ""),
        ("?sinceSeconds=10", "second\n"),
        ("?sinceSeconds=9", ""),
        ("?sinceTime=1970-01-12T13%3A48%3A10Z", "second\n"),
        ("?limitBytes=8", "first\nse"),
        ("?timestamps=true&tailLines=1", "1970-01-12T13:48:10.000000000Z second\n"),
        ("?container=init", ""),
    ] {
        let text = client.request_text(get(&format!("one/log{query}"))).await.unwrap();
        assert_eq!(text, want, "{query}");
    }
}

#[tokio::test]
async fn a_followed_log_continues_until_the_server_stops() {
    let (client, log) = cluster().await;
    let stream = client.request_stream(get("one/log?follow=true&tailLines=1")).await.unwrap();
    let mut lines = stream.lines();
    let mut next = async || soon("a line", lines.try_next()).await.unwrap();
    assert_eq!(next().await.as_deref(), Some("second"));
    log.append(time(101), "third");
    assert_eq!(next().await.as_deref(), Some("third"));
}

#[tokio::test]
async fn requests_without_an_answer_say_why() {
    let (client, _) = cluster().await;
    for (path, code, want) in [
        ("none/log", 404, "pods \"none\" not found"),
        ("one/log?container=x", 400, "container x is not valid for pod one"),
        (
            "two/log",
            400,
            "a container name must be specified for pod two, choose one of: [main other] or one of \
             the init containers: [init]",
        ),
        ("one/log?tailLines=x", 400, "invalid syntax"),
        ("one/log?tailLines=-1", 422, "tailLines: Invalid value: -1"),
        ("one/log?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z", 422, "at most one of"),
        ("one/log?previous=true", 400, "previous terminated container \"main\" in pod \"one\""),
        ("one/exec?command=ls", 400, "\"one\" is simulated"),
    ] {
        let (found, message) = refusal(client.request_text(get(path)).await);
        assert_eq!(found, code, "{path}: {message}");
        assert!(message.contains(want), "{path}: {message}");
    }
}
