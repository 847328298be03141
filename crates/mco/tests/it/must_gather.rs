//! `mco must-gather`: what an engineer needs is there, and no secret is.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    thread,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event, Namespace, Node, Secret},
};
use kube::Api;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, label};
use mco_ignition::data_url;
use mco_testkit::objects;
use serde_json::{Value, json};

use crate::{Folder, health::Cluster};

/// The secret, as text and in base64 at each of the three offsets.
const MARKER: &str = "hunter2-marker-0815";
const ENCODED: [&str; 3] =
    ["aHVudGVyMi1tYXJrZXItMDgx", "h1bnRlcjItbWFya2VyLTA4MT", "odW50ZXIyLW1hcmtlci0wODE1"];

#[tokio::test]
async fn no_secret_is_gathered_on_the_embedded_api_server() {
    no_secret_is_gathered(Cluster::embedded().await).await;
}

#[tokio::test]
async fn no_secret_is_gathered_on_a_real_kube_apiserver() {
    if let Some(cluster) = Cluster::real().await {
        no_secret_is_gathered(cluster).await;
    }
}

async fn no_secret_is_gathered(cluster: Cluster) {
    cluster.install_kinds().await;
    create(&cluster).await;
    let folder = Folder::new(&[]);
    let dir = folder.path("report");
    let (code, text, errors) = cluster.run(&["must-gather", dir.to_str().unwrap()]).await;
    assert_eq!(code, 0, "{text}{errors}");
    assert!(errors.contains("wrote 1 secrets") && errors.contains("wrote doctor.json"), "{errors}");

    let files = files(&dir);
    for (name, text) in &files {
        let leaks = [MARKER].iter().chain(&ENCODED).any(|marker| text.contains(marker));
        assert!(!leaks, "{name}:\n{text}");
    }
    let read = |name: &str| {
        let found = files.iter().find(|(file, _)| file == name);
        &found
            .unwrap_or_else(|| {
                panic!("{name} in {:?}", files.iter().map(|it| &it.0).collect::<Vec<_>>())
            })
            .1
    };
    let config = read("machineconfigs/99-secret.yaml");
    assert!(config.contains("/etc/secret") && config.contains("sha256"), "{config}");
    assert!(config.contains("ssh-ed25519 AAAA core"), "{config}");
    assert!(config.contains("pool ntp.example.org"), "known settings stay: {config}");
    assert!(read("machineconfigpools/worker.yaml").contains("kind: MachineConfigPool"));
    assert!(read("nodes/w-0.yaml").contains("rendered-worker-1"));
    assert!(read("secrets/pull.yaml").contains(".dockerconfigjson"));
    assert!(read("configmaps/user.yaml").contains("(redacted: "));
    assert!(read("deployments/machine-config-operator.yaml").contains("registry.test/mco:1"));
    assert!(files.iter().any(|(name, text)| name.starts_with("events/") && text.contains("login")));
    let doctor: Value = serde_json::from_str(read("doctor.json")).unwrap();
    assert!(!doctor["findings"].as_array().unwrap().is_empty());
    let versions: Value = serde_json::from_str(read("versions.json")).unwrap();
    assert!(versions["cluster"]["kubernetes"].as_str().unwrap().starts_with("v1."));

    let (code, _, errors) = cluster.run(&["must-gather", dir.to_str().unwrap()]).await;
    assert_eq!(code, 1);
    assert!(errors.contains("is not an empty directory"), "{errors}");
}

/// Answers one request as an API server with one pod that was restarted.
fn answer(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let path = first.split(' ').nth(1).unwrap();
    while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
    let pods = format!("/api/v1/namespaces/{}/pods", label::NAMESPACE);
    let log = format!("{pods}/machine-config-daemon-a/log?container=machine-config-daemon&");
    let (status, body) = if path == "/version" {
        let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.4", "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
        ("200 OK", version.to_string())
    } else if path == pods || path.starts_with(&format!("{pods}?")) {
        let name = "machine-config-daemon";
        let pod = json!({"metadata": {"name": "machine-config-daemon-a", "labels": {"k8s-app": name}},
            "spec": {"containers": [{"name": name, "image": "mco:1"}]},
            "status": {"containerStatuses": [{"name": name, "restartCount": 1, "ready": true,
                "image": "", "imageID": ""}]}});
        ("200 OK", json!({"metadata": {"resourceVersion": "1"}, "items": [pod]}).to_string())
    } else if let Some(query) = path.strip_prefix(&log) {
        let run = if query.contains("previous=true") { "before" } else { "now" };
        ("200 OK", format!("started {run}\nlogin token={MARKER}\nended\n"))
    } else if path.contains("/leases") {
        (
            "500 Internal Server Error",
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": "no database", "code": 500})
            .to_string(),
        )
    } else {
        (
            "404 Not Found",
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
            "status": "Failure", "message": "not found", "reason": "NotFound", "code": 404})
            .to_string(),
        )
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: \
         close\r\n\r\n{body}",
        body.len(),
    )
    .unwrap();
}

#[test]
fn logs_are_gathered_and_failures_are_listed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {{cluster: a, \
         user: a}}\nclusters:\n- name: a\n  cluster: {{server: \"http://{address}\"}}\nusers:\n- name: a\n  \
         user: {{}}\n"
    );
    let folder = Folder::new(&[("kubeconfig", kubeconfig.as_bytes())]);
    let run =
        folder.mco(&["must-gather", "report", "--kubeconfig", "kubeconfig"]).output().unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", String::from_utf8_lossy(&run.stderr));
    let log = |name: &str| folder.read(&format!("report/logs/machine-config-daemon-a/{name}"));
    let expected = |run: &str| format!("started {run}\nlogin token=(redacted)\nended\n");
    assert_eq!(log("machine-config-daemon.log"), expected("now"));
    assert_eq!(log("machine-config-daemon.previous.log"), expected("before"));
    let errors = folder.read("report/errors.txt");
    assert!(errors.contains("/leases?limit=") || errors.contains("/leases:"), "{errors}");
    assert!(errors.contains("no database"), "{errors}");
    assert!(folder.read("report/pods/machine-config-daemon-a.yaml").contains("mco:1"));
}

#[expect(clippy::disallowed_methods, reason = "the test reads the output files")]
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, 0o600, "{}", path.display());
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            found.push((name, std::fs::read_to_string(path).unwrap()));
        }
    }
    found
}

/// Creates objects with the marker in every place that may hold a secret.
async fn create(cluster: &Cluster) {
    let client = &cluster.client;
    cluster.put(Api::<Namespace>::all(client.clone()), label::NAMESPACE, json!({})).await;
    secrets(cluster).await;
    configs(cluster).await;
    let node = objects::worker("w-0", "rendered-worker-1");
    let annotations = node.metadata.annotations.unwrap_or_default();
    let node = json!({"metadata": {"annotations": annotations}});
    cluster.put(Api::<Node>::all(client.clone()), "w-0", node).await;
    let pool = json!(objects::pool("worker"));
    let pool = json!({"spec": pool["spec"]});
    cluster.put(Api::<MachineConfigPool>::all(client.clone()), "worker", pool).await;
    let labels = json!({"k8s-app": "machine-config-operator"});
    let container = json!({"name": "a", "image": "registry.test/mco:1",
        "args": ["start", format!("--password={MARKER}")],
        "env": [{"name": "HTTPS_PROXY", "value": format!("http://u:{MARKER}@proxy")},
            {"name": "ANYTHING", "value": MARKER}]});
    let deployment = json!({"spec": {"selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
    let deployments = Api::<Deployment>::namespaced(client.clone(), label::NAMESPACE);
    cluster.put(deployments, "machine-config-operator", deployment).await;
    let event = json!({"message": format!("login failed: token={MARKER}"), "reason": "A",
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": label::NAMESPACE}});
    let events = Api::<Event>::namespaced(client.clone(), label::NAMESPACE);
    cluster.put(events, "a.1", event).await;
}

async fn secrets(cluster: &Cluster) {
    let client = &cluster.client;
    let auths = json!({"auths": {"registry.test": {"auth": MARKER}}}).to_string();
    let applied = json!({"data": MARKER}).to_string();
    let secret = json!({
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": auths}});
    let all = Api::<Secret>::namespaced(client.clone(), label::NAMESPACE);
    cluster.put(all, "pull", secret).await;
    let kubeconfig = format!("users:\n- name: a\n  user:\n    token: {MARKER}\n");
    let data = json!({"kubeconfig": kubeconfig, "any": MARKER});
    let maps = || Api::<ConfigMap>::namespaced(client.clone(), label::NAMESPACE);
    cluster.put(maps(), "user", json!({"data": data})).await;
    let settings = json!({"data": {"settings": format!("proxy: http://u:{MARKER}@host\n")}});
    cluster.put(maps(), "cluster-settings", settings).await;
    objects::create_controller_config(client, "v1").await.unwrap();
    let configs = Api::<ControllerConfig>::all(client.clone());
    let patch = kube::api::Patch::Merge(json!({"spec": {
        "cloudProviderConfig": format!("[Global]\npassword = {MARKER}\n"),
        "internalRegistryPullSecret": base64(MARKER),
        "proxy": {"httpProxy": format!("http://u:{MARKER}@proxy:3128")},
    }}));
    let params = kube::api::PatchParams::default();
    configs.patch(label::CONTROLLER_CONFIG, &params, &patch).await.unwrap();
}

fn base64(text: &str) -> String {
    let url = data_url::encode_base64(text.as_bytes());
    url.rsplit(',').next().unwrap().to_owned()
}

async fn configs(cluster: &Cluster) {
    let plain = data_url::encode(MARKER.as_bytes());
    let encoded = data_url::encode_base64(format!("key: {MARKER}").as_bytes());
    let key = data_url::encode(
        format!("-----BEGIN PRIVATE KEY-----\n{MARKER}\n-----END PRIVATE KEY-----\n").as_bytes(),
    );
    let chrony = data_url::encode(format!("pool ntp.example.org\npassword={MARKER}\n").as_bytes());
    let file = |path: &str, source: &str| json!({"path": path, "contents": {"source": source}});
    let config = json!({
        "ignition": {"version": "3.4.0", "config": {"merge": [{"source": plain}]}},
        "passwd": {"users": [{"name": "core", "passwordHash": MARKER,
            "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"]}]},
        "storage": {"files": [
            file("/etc/secret", &plain),
            file("/etc/encoded", &encoded),
            file("/etc/key.pem", &key),
            file("/etc/chrony.conf", &chrony),
            file("/etc/remote", &format!("https://u:{MARKER}@host/a?token={MARKER}")),
        ]},
        "systemd": {"units": [{"name": "a.service",
            "contents": format!("[Service]\nEnvironment=A={MARKER}\nExecStart=/bin/a {MARKER}\n"),
            "dropins": [{"name": "b.conf", "contents": format!("[Service]\nEnvironment={MARKER}\n")}]}]},
    });
    let object = json!({
        "metadata": {"labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": config, "kernelArguments": [format!("rd.token={MARKER}"), "quiet"]},
    });
    let all = Api::<MachineConfig>::all(cluster.client.clone());
    cluster.put(all, "99-secret", object).await;
}
