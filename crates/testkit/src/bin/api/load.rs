//! The requests of the benchmark, the same for both servers.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// Number of requests that are sent at the same time.
const PARALLEL: usize = 32;

/// Number of lists, of which the median counts.
const LISTS: usize = 9;

/// Number of images that a node reports.
const IMAGES: usize = 20;

/// Size of the object that is watched.
const WATCHED: usize = 1_000;

const MERGE: &str = "application/merge-patch+json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The size of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) watchers: usize,
    pub(crate) events: usize,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, pods, watchers, events } = self;
        write!(f, "{nodes} nodes, {pods} pods, {watchers} watchers of {events} events")
    }
}

/// The figures of one server.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Creates per second.
    pub(crate) creates: f64,
    /// Updates per second.
    pub(crate) updates: f64,
    /// Duration of a list, in milliseconds.
    pub(crate) list: f64,
    /// Events per second, of all watchers together.
    pub(crate) events: f64,
    /// Memory with all objects, in MiB.
    pub(crate) memory: f64,
}

/// Sends all requests. The memory is not measured.
pub(crate) async fn run(client: &Client, size: &Size) -> anyhow::Result<Measured> {
    let creates = per_second(size.nodes, |number| async move {
        let body = node(number);
        send(client, Method::POST, "/api/v1/nodes", "application/json", &body).await
    });
    let creates = creates.await.context("failed to create the nodes")?;
    let updates = per_second(size.nodes, |number| async move {
        let body = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
            "reason": "KubeletReady", "message": format!("update {number}")}]}});
        let path = format!("/api/v1/nodes/{}/status", name(number));
        send(client, Method::PATCH, &path, MERGE, &body).await
    });
    let updates = updates.await.context("failed to update the nodes")?;
    let list = median_list(client).await.context("failed to list the nodes")?;
    let events = watched(client, size).await.context("failed to watch")?;
    let pods = per_second(size.pods, |number| async move {
        let path = "/api/v1/namespaces/default/pods";
        send(client, Method::POST, path, "application/json", &pod(number, size.nodes)).await
    });
    pods.await.context("failed to create the pods")?;
    Ok(Measured { creates, updates, list, events, memory: 0.0 })
}

/// Sends `count` requests and returns their number per second.
async fn per_second<F>(count: usize, request: impl Fn(usize) -> F) -> anyhow::Result<f64>
where
    F: Future<Output = anyhow::Result<Response<Body>>>,
{
    let begin = Instant::now();
    stream::iter(0..count)
        .map(|number| {
            let request = request(number);
            async { read(request.await?).await.map(drop) }
        })
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    Ok(rate(count, begin.elapsed()))
}

fn rate(count: usize, time: Duration) -> f64 {
    let count = u32::try_from(count).map_or(f64::MAX, f64::from);
    count / time.as_secs_f64().max(f64::EPSILON)
}

async fn send(
    client: &Client,
    method: Method,
    path: &str,
    media: &str,
    body: &Value,
) -> anyhow::Result<Response<Body>> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let response = client.send(request.body(Body::from(body))?).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (code, body) = (response.status(), read(response).await?);
    bail!("{path} is answered with {code}: {}", String::from_utf8_lossy(&body))
}

/// Reads a whole answer.
async fn read(response: Response<Body>) -> anyhow::Result<bytes::Bytes> {
    Ok(response.into_body().collect().await?.to_bytes())
}

/// Returns the median duration of a list of all nodes, in milliseconds.
async fn median_list(client: &Client) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(LISTS);
    for _ in 0..LISTS {
        let begin = Instant::now();
        let path = "/api/v1/nodes";
        read(send(client, Method::GET, path, "application/json", &Value::Null).await?).await?;
        times.push(begin.elapsed().as_secs_f64() * 1_000.0);
    }
    times.sort_by(f64::total_cmp);
    times.get(LISTS / 2).copied().context("no list was measured")
}

/// Creates objects that many watchers see. Returns the number of events that reach them per second.
async fn watched(client: &Client, size: &Size) -> anyhow::Result<f64> {
    let create = |number: usize| async move {
        let map = json!({"metadata": {"name": format!("watched-{number}")},
            "data": {"text": "x".repeat(WATCHED)}});
        send(client, Method::POST, MAPS, "application/json", &map).await
    };
    let first: Value = serde_json::from_slice(&read(create(0).await?).await?)?;
    let version = first.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let version = version.context("the answer has no version")?;
    let open = (0..size.watchers).map(|_| watch(client, version));
    let watchers = future::try_join_all(open).await?;
    let watchers: Vec<_> = watchers
        .into_iter()
        .map(|watcher| tokio::spawn(read_events(client.clone(), watcher, size.events)))
        .collect();
    let begin = Instant::now();
    per_second(size.events, |number| create(number + 1)).await?;
    for watcher in watchers {
        watcher.await??;
    }
    Ok(rate(size.watchers * size.events, begin.elapsed()))
}

async fn watch(client: &Client, version: &str) -> anyhow::Result<Response<Body>> {
    let path = format!("{MAPS}?watch=true&resourceVersion={version}");
    send(client, Method::GET, &path, "", &Value::Null).await
}

/// Reads a watch until it has sent `count` events. A server may end the watch of a slow client, which
/// then continues after the last event.
async fn read_events(
    client: Client,
    mut response: Response<Body>,
    count: usize,
) -> anyhow::Result<()> {
    let mut seen = 0;
    let mut text = Vec::new();
    loop {
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let data = frame?.into_data().unwrap_or_default();
            seen += data.split(|byte| *byte == b'\n').count() - 1;
            if seen >= count {
                return Ok(());
            }
            text.extend_from_slice(&data);
            keep_last_line(&mut text);
        }
        let version = version_of_last(&text).context("a watch ended before its first event")?;
        text.truncate(text.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        response = watch(&client, &version).await?;
    }
}

/// Drops all before the last whole line.
fn keep_last_line(text: &mut Vec<u8>) {
    let is_end = |byte: &u8| *byte == b'\n';
    let Some(end) = text.iter().rposition(is_end) else { return };
    let start = text.iter().take(end).rposition(is_end);
    text.drain(..start.map_or(0, |start| start + 1));
}

/// Returns the version of the object in the first line, which is whole.
fn version_of_last(text: &[u8]) -> Option<String> {
    let line = text.split(|byte| *byte == b'\n').next()?;
    let event: Value = serde_json::from_slice(line).ok()?;
    event.pointer("/object/metadata/resourceVersion")?.as_str().map(str::to_owned)
}

fn name(number: usize) -> String {
    format!("worker-{number:05}")
}

/// Returns a node as its kubelet reports it, with fewer images.
fn node(number: usize) -> Value {
    let name = name(number);
    let image = |number: usize| {
        json!({"names": [format!("registry.test/release/component@sha256:{number:064x}"),
            format!("registry.test/release/component-{number}:v1")],
            "sizeBytes": 500_000_000 + number})
    };
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": format!("Kubelet{kind}"),
            "message": format!("kubelet reports {kind}={status}"),
            "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "node-role.kubernetes.io/worker": ""},
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"),
            condition("DiskPressure", "False"), condition("PIDPressure", "False")],
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "250"},
            "allocatable": {"cpu": "63500m", "memory": "250Gi", "pods": "250"},
            "addresses": [{"type": "Hostname", "address": name}],
            "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
            "nodeInfo": {"architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c",
                "kernelVersion": "6.1", "kubeProxyVersion": "", "kubeletVersion": "v1.36.0",
                "machineID": "m", "operatingSystem": "linux", "osImage": "Linux",
                "systemUUID": "u"}}})
}

fn pod(number: usize, nodes: usize) -> Value {
    let variable = |number: usize| json!({"name": format!("VARIABLE_{number}"), "value": "value"});
    json!({"metadata": {"name": format!("pod-{number:05}"),
            "labels": {"app": format!("app-{}", number % 100), "pod-template-hash": "7d4b9c"}},
        "spec": {"nodeName": name(number % nodes.max(1)),
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "registry.test/app:v1",
                "env": (0..8).map(variable).collect::<Vec<_>>(),
                "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}]}})
}
