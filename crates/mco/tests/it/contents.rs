//! No process logs the contents of an object, at any level.

#![expect(clippy::disallowed_methods, reason = "the test writes input files and reads logs")]

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, annotation, label};
use mco_cluster::client;
use mco_testkit::{
    PATIENCE,
    api::{self, ApiServer as _, Embedded, Process, command},
    object_wait, objects,
    pki::Authority,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::processes::installed;

/// Contents that no log may have.
const MARKER: &str = "Tr0ub4dor-and-3-Horses";

const NODE: &str = "worker-0";

/// Starts a process that logs everything.
fn start(name: &str, words: &[&str], kubeconfig: &Path, folder: &Path) -> Process {
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args(["-v", name, "start"]).args(words).arg("--kubeconfig").arg(kubeconfig);
    command.env_remove("KUBECONFIG").env_remove("RELEASE_VERSION");
    let log = folder.join(format!("{name}.log"));
    Process::start(name, &mut command, &log).expect("the binary starts")
}

fn start_all(api: &Embedded, folder: &Path, port: &str) -> Vec<Process> {
    let authority = Authority::new("test").expect("an authority");
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let pair = authority.server("machine-config-server", &names).expect("a certificate");
    let path = |name: &str| folder.join(name).display().to_string();
    let (certificate, key, root) = (path("tls.crt"), path("tls.key"), path("root"));
    fs::write(&certificate, pair.certificate).expect("the certificate is written");
    fs::write(&key, pair.key).expect("the key is written");
    let metrics = ["--metrics-listen-address", "127.0.0.1:0"];
    let daemon = ["--node-name", NODE, "--root-mount", &root, "--boot-seconds", "1"];
    let server = ["--apiserver-url", api.url(), "--without-kubeconfig", "--secure-port", "0"];
    let files = ["--insecure-port", port, "--cert", &certificate, "--key", &key];
    let rows = [
        ("operator", metrics.to_vec()),
        ("controller", metrics.to_vec()),
        ("daemon", [&daemon[..], &metrics].concat()),
        ("server", [&server[..], &files, &metrics].concat()),
    ];
    rows.map(|(name, words)| start(name, &words, api.kubeconfig(), folder)).into()
}

/// Returns a config whose file, unit, key and password contain the marker.
fn config(name: &str) -> MachineConfig {
    let encoded = STANDARD.encode(MARKER);
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {label::ROLE: "worker"}},
        "spec": {"config": {
            "ignition": {"version": "3.5.0"},
            "passwd": {"users": [{"name": "core", "passwordHash": MARKER,
                "sshAuthorizedKeys": [format!("ssh-ed25519 {MARKER}")]}]},
            "storage": {"files": [
                {"path": "/etc/plain", "contents": {"source": format!("data:,{MARKER}")}},
                {"path": "/etc/encoded", "mode": 0o600,
                 "contents": {"source": format!("data:;base64,{encoded}")}},
            ]},
            "systemd": {"units": [{"name": "marked.service", "enabled": true,
                "contents": format!("[Service]\nExecStart=/bin/true {MARKER}\n")}]},
        }},
    }))
    .expect("the JSON above is a MachineConfig")
}

/// Writes the marker into all kinds of objects that the processes read.
async fn write_marked_objects(client: &Client) {
    let params = PostParams::default();
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "pull-secret", "namespace": label::NAMESPACE},
        "data": {".dockerconfigjson": STANDARD.encode(MARKER)},
    }))
    .expect("the JSON above is a Secret");
    let secrets = Api::<Secret>::namespaced(client.clone(), label::NAMESPACE);
    secrets.create(&params, &secret).await.expect("the Secret is created");
    let encoded = STANDARD.encode(MARKER);
    let patch = Patch::Merge(json!({"spec": {
        "additionalTrustBundle": encoded, "cloudProviderCAData": encoded,
        "internalRegistryPullSecret": encoded,
    }}));
    let clusters = Api::<ControllerConfig>::all(client.clone());
    let params_of_patch = PatchParams::default();
    let patched = clusters.patch(label::CONTROLLER_CONFIG, &params_of_patch, &patch).await;
    patched.expect("the ControllerConfig is patched");
    let configs = Api::<MachineConfig>::all(client.clone());
    configs.create(&params, &config("99-marked")).await.expect("the config is created");
}

/// Waits until the node has a config other than `old`, and returns the config.
async fn updated(client: &Client, old: &str) -> String {
    let nodes = Api::<Node>::all(client.clone());
    let value = |node: &Node, key: &str| {
        node.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
    };
    let is_done = |node: Option<&Node>| {
        node.is_some_and(|node| {
            let current = value(node, annotation::CURRENT_CONFIG.name());
            current != old
                && !current.is_empty()
                && value(node, annotation::STATE.name()) == "Done"
                && current == value(node, annotation::DESIRED_CONFIG.name())
        })
    };
    let node = object_wait::wait_until(nodes, NODE, "an update", is_done).await;
    value(&node.expect("the node is updated").expect("a node"), annotation::CURRENT_CONFIG.name())
}

/// Writes configs that cannot be rendered or decoded, and waits until the controller has said so.
async fn write_invalid_configs(client: &Client, controller: &Process) {
    let resource = ApiResource::erase::<MachineConfig>(&());
    let configs = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let create = async |name: &str, spec: Value| {
        let object = json!({"apiVersion": resource.api_version, "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {label::ROLE: "worker"}}, "spec": spec});
        let object = serde_json::from_value(object).expect("an object");
        configs.create(&PostParams::default(), &object).await.map(drop)
    };
    let wrong = json!({"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": MARKER}}});
    create("98-wrong", wrong).await.expect("the API server does not check Ignition");
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let is_degraded = |pool: Option<&MachineConfigPool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        status.is_some_and(|status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|it| it.kind == "RenderDegraded" && it.status == "True")
        })
    };
    let degraded = object_wait::wait_until(pools, "worker", "a refusal", is_degraded).await;
    degraded.expect("the config is refused");
    // An object that cannot be decoded: extensions are a list.
    let accepted = objects::accept_everything::<MachineConfig>(client).await;
    accepted.expect("the definition is replaced");
    let broken = Patch::Merge(json!({"spec": {"extensions": MARKER}}));
    let patched = configs.patch("98-wrong", &PatchParams::default(), &broken).await;
    patched.expect("the API server does not check extensions");
    let said = || controller.log().contains("decode").then_some(());
    api::wait("a log line about the object that cannot be decoded", PATIENCE, said)
        .expect("the controller names the fault");
}

/// Returns a port that no process listens on.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port().to_string()
}

/// Fetches the config of new workers from the server.
fn served(port: &str) -> String {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).expect("the server listens");
    let request = "GET /config/worker HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
        accept: application/vnd.coreos.ignition+json;version=3.5.0\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[tokio::test]
async fn no_process_logs_the_contents_of_an_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path())
        .expect("the embedded API server starts");
    let port = free_port();
    let mut processes = start_all(&api, folder.path(), &port);
    let client = client::connect(Some(api.kubeconfig())).await.expect("a client");
    installed(&client, "machineconfigpools.machineconfiguration.openshift.io").await;
    let nodes = Api::<Node>::all(client.clone());
    let mut node = objects::worker(NODE, "");
    node.metadata.annotations = None;
    nodes.create(&PostParams::default(), &node).await.expect("the node is created");

    let first = updated(&client, "").await;
    write_marked_objects(&client).await;
    updated(&client, &first).await;
    let written = fs::read_to_string(folder.path().join("root/etc/encoded"));
    assert_eq!(written.expect("the rollout wrote the file"), MARKER);
    let serves = || served(&port).contains(MARKER).then_some(());
    api::wait("the server to serve the new config", PATIENCE, serves).expect("it does");
    write_invalid_configs(&client, &processes[1]).await;

    for process in &processes {
        process.signal(Signal::TERM).expect("it runs");
    }
    for process in &mut processes {
        assert!(process.wait(PATIENCE).expect("it ends").success());
    }
    assert!(processes[1].log().contains("DEBUG"), "the processes log everything");
    for name in ["apiserver", "operator", "controller", "daemon", "server"] {
        let log = fs::read_to_string(folder.path().join(format!("{name}.log"))).expect("a log");
        assert!(!log.is_empty(), "{name} logs");
        for marker in [MARKER.to_owned(), STANDARD.encode(MARKER).replace('=', "")] {
            let line = log.lines().find(|line| line.contains(&marker));
            assert_eq!(line, None, "{name} logged contents");
        }
    }
}
