//! Kills the server with SIGKILL while it writes: acknowledged writes must survive, and deletions are
//! completed at the next start.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use mco_apiserver::{ApiServer, Listener, Settings};
use serde_json::{Value, json};

use crate::{
    fixture::{refusal, soon},
    listening::{client_by, config_map},
};

const DIR: &str = "MCO_APISERVER_CRASH_DIR";

/// The process that is killed: a listener that reports when it is ready.
#[test]
#[ignore = "the test below runs it as a separate process"]
#[expect(clippy::disallowed_methods, reason = "the parent names the directory")]
fn killed_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let dir = Path::new(&dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = ApiServer::open_dir(dir, Settings::default()).await.unwrap();
        let listener = Listener::bind(api, dir, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        writeln!(std::io::stdout(), "\nready").unwrap();
        listener.serve(std::future::pending()).await;
    });
}

#[expect(clippy::disallowed_methods, reason = "a process that can be killed")]
async fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::killed_process", "--exact", "--ignored", "--nocapture"]).env(DIR, dir);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let ready = tokio::task::spawn_blocking(move || {
        output.lines().map_while(Result::ok).any(|line| line == "ready")
    });
    assert!(soon("the server to be ready", ready).await.unwrap());
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path()).await;
    let api: Api<ConfigMap> = Api::namespaced(client_by(dir.path(), "mco").await, "default");
    let acknowledged: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let (enough, mut count) = tokio::sync::mpsc::unbounded_channel();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (api, acknowledged, enough) =
                (api.clone(), Arc::clone(&acknowledged), enough.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    let name = format!("w{writer}-{number}");
                    let Ok(made) = api.create(&PostParams::default(), &config_map(&name)).await
                    else {
                        return;
                    };
                    let version = made.resource_version().unwrap();
                    acknowledged.lock().unwrap().insert(name, version);
                    let _ = enough.send(());
                }
            })
        })
        .collect();
    for _ in 0..60 {
        soon("an acknowledged write", count.recv()).await.unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for writer in writers {
        writer.abort();
        let _ = writer.await;
    }

    let mut child = start(dir.path()).await;
    let api: Api<ConfigMap> = Api::namespaced(client_by(dir.path(), "mco").await, "default");
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    assert!(acknowledged.len() >= 60);
    for (name, version) in &acknowledged {
        assert_eq!(api.get(name).await.unwrap().resource_version().as_ref(), Some(version));
    }
    let next = api.create(&PostParams::default(), &config_map("next")).await.unwrap();
    let number = |version: &str| version.parse::<u64>().unwrap();
    let newest = acknowledged.values().map(|version| number(version)).max().unwrap();
    assert!(number(&next.resource_version().unwrap()) > newest);
    child.kill().unwrap();
    child.wait().unwrap();
}

const MAPS: &str = "/api/v1/namespaces/n/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/a.io/v1/things";

/// Number of objects that a deletion removes.
const OBJECTS: usize = 200;

async fn send(client: &Client, method: &str, uri: &str, body: &Value) -> kube::Result<Value> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(uri);
    client.request(request.header("content-type", "application/json").body(body).unwrap()).await
}

/// Returns the number of objects of a collection.
async fn count(client: &Client, collection: &str) -> usize {
    let list = send(client, "GET", collection, &Value::Null).await;
    list.map_or(0, |list| list["items"].as_array().map_or(0, Vec::len))
}

fn definition() -> Value {
    json!({"metadata": {"name": "things.a.io"}, "spec": {"group": "a.io", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1",
        "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

/// Kills the server in the middle of a deletion, and starts it again. Returns the server, and a client.
async fn interrupt(dir: &Path, deleted: &str, options: &Value, left: &str) -> (Child, Client) {
    let mut child = start(dir).await;
    let client = client_by(dir, "mco").await;
    let namespace = json!({"metadata": {"name": "n"}});
    send(&client, "POST", "/api/v1/namespaces", &namespace).await.unwrap();
    send(&client, "POST", DEFINITIONS, &definition()).await.unwrap();
    let owner = json!({"metadata": {"name": "owner"}});
    let owner = send(&client, "POST", "/api/v1/namespaces/n/secrets", &owner).await.unwrap();
    let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": "owner",
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true});
    for number in 0..OBJECTS {
        let name = format!("o{number}");
        let map = json!({"metadata": {"name": name, "ownerReferences": [reference]}});
        send(&client, "POST", MAPS, &map).await.unwrap();
        let thing = json!({"apiVersion": "a.io/v1", "kind": "Thing", "metadata": {"name": name}});
        send(&client, "POST", THINGS, &thing).await.unwrap();
    }
    let request = {
        let (client, uri, options) = (client.clone(), deleted.to_owned(), options.clone());
        tokio::spawn(async move { send(&client, "DELETE", &uri, &options).await })
    };
    let begun = async {
        loop {
            let left = count(&client, left).await;
            if left < OBJECTS {
                return left;
            }
        }
    };
    let left = soon("the first object to be deleted", begun).await;
    child.kill().unwrap();
    child.wait().unwrap();
    request.abort();
    assert!(left > 0, "the server is killed before the deletion ends");
    (start(dir).await, client_by(dir, "mco").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_of_a_namespace_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = "/api/v1/namespaces/n";
    let (mut child, client) = interrupt(dir.path(), namespace, &Value::Null, MAPS).await;
    assert_eq!(refusal(send(&client, "GET", namespace, &Value::Null).await).0, 404);
    assert_eq!(count(&client, MAPS).await, 0);
    assert_eq!(count(&client, THINGS).await, OBJECTS);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_of_an_owner_survives_a_kill() {
    for policy in ["Foreground", "Background"] {
        let dir = tempfile::tempdir().unwrap();
        let owner = "/api/v1/namespaces/n/secrets/owner";
        let options = json!({"propagationPolicy": policy});
        let (mut child, client) = interrupt(dir.path(), owner, &options, MAPS).await;
        assert_eq!(refusal(send(&client, "GET", owner, &Value::Null).await).0, 404, "{policy}");
        assert_eq!(count(&client, MAPS).await, 0, "{policy}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_of_a_definition_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("{DEFINITIONS}/things.a.io");
    let (mut child, client) = interrupt(dir.path(), &uri, &Value::Null, THINGS).await;
    assert_eq!(refusal(send(&client, "GET", &uri, &Value::Null).await).0, 404);
    send(&client, "POST", DEFINITIONS, &definition()).await.unwrap();
    assert_eq!((count(&client, THINGS).await, count(&client, MAPS).await), (0, OBJECTS));
    child.kill().unwrap();
    child.wait().unwrap();
}
