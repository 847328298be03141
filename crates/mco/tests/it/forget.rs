//! `mco uninstall --forget` and `mco host forget`: the records of mco leave the machines.

#![expect(clippy::disallowed_methods, reason = "the test reads and writes files of a machine")]

use std::{path::Path, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_cluster::{NoteCount, Reporter, Shutdown, client};
use mco_daemon::{
    Clients, DaemonContext,
    simulate::{FirstConfig, Machine, Power, simulate},
};
use mco_testkit::{
    PATIENCE,
    api::{ApiServer, Embedded, KubeApiServer, Process, command},
    object_wait,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    mco,
    processes::{installed, stop},
};

const NODE: &str = "worker-0";

fn start(api: &dyn ApiServer, folder: &Path, process: &str) -> Process {
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
    command.arg("--kubeconfig").arg(api.kubeconfig()).env_remove("RELEASE_VERSION");
    Process::start(process, &mut command, &folder.join(format!("{process}.log"))).unwrap()
}

async fn create_node(client: &Client, name: &str, ready: &str, annotations: Value) {
    let labels = json!({"node-role.kubernetes.io/worker": ""});
    let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
    let node = json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}});
    let nodes = Api::<Node>::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let patch = Patch::Merge(json!({"status": status}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Starts operator and controller, and waits until the pool has a config with the file `/etc/a`.
async fn start_with_config(api: &dyn ApiServer, folder: &Path, client: &Client) -> [Process; 2] {
    let operator = start(api, folder, "operator");
    for kind in ["machineconfigs", "machineconfigpools"] {
        installed(client, &format!("{kind}.machineconfiguration.openshift.io")).await;
    }
    let config = json!({
        "metadata": {"name": "99-worker-a",
            "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/a", "mode": 0o644, "contents": {"source": "data:,of%20a%20config"}},
        ]}}},
    });
    let configs = Api::<MachineConfig>::all(client.clone());
    let config = serde_json::from_value(config).unwrap();
    configs.create(&PostParams::default(), &config).await.unwrap();
    let controller = start(api, folder, "controller");
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let has_config = |found: Option<&MachineConfigPool>| {
        let sources = found.map(|pool| pool.spec.configuration.source.iter());
        sources.into_iter().flatten().any(|it| it.name == "99-worker-a")
    };
    object_wait::wait_until(pools, "worker", "a rendered config", has_config).await.unwrap();
    [operator, controller]
}

/// A node with its daemon forgets, and the file of a MachineConfig stays; a node without is named.
async fn nodes_forget(api: &dyn ApiServer) {
    let folder = tempfile::tempdir().unwrap();
    let client = client::connect(Some(api.kubeconfig())).await.unwrap();
    let [operator, controller] = start_with_config(api, folder.path(), &client).await;
    create_node(&client, NODE, "True", json!({})).await;
    let root = folder.path().join("root");
    let machine = Machine {
        node: NODE.parse().unwrap(),
        root: root.clone(),
        boot_time: Duration::from_millis(1),
        power: watch::Sender::new(Power::Off),
        first: FirstConfig::ApiServer,
    };
    let shutdown = Shutdown::new();
    let clients = Clients { own: client.clone(), node: client.clone() };
    let reporter = Reporter::new(client.clone(), "machineconfigdaemon", NoteCount::default());
    let daemon = simulate(machine, DaemonContext::new(clients, reporter), shutdown.clone());
    let daemon = tokio::spawn(async move { daemon.await.unwrap() });
    let nodes = Api::<Node>::all(client.clone());
    let is_done = |found: Option<&Node>| {
        let key = "machineconfiguration.openshift.io/state";
        found.is_some_and(|node| node.annotations().get(key).is_some_and(|state| state == "Done"))
    };
    object_wait::wait_until(nodes.clone(), NODE, "Done", is_done).await.unwrap();
    let records = root.join("etc/machine-config-daemon");
    assert!(records.join("currentconfig").exists() && root.join("etc/a").exists());
    let state = json!({"machineconfiguration.openshift.io/state": "Done"});
    create_node(&client, "away", "Unknown", state).await;

    assert!(stop(operator).success() && stop(controller).success());
    let kubeconfig = api.kubeconfig().to_owned();
    let run = tokio::task::spawn_blocking(move || {
        mco(&["uninstall", "--yes", "--forget"]).env("KUBECONFIG", kubeconfig).output().unwrap()
    });
    let run = run.await.unwrap();
    let text = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
    assert_eq!(run.status.code(), Some(1), "a node did not answer: {text}");
    assert!(text.contains("Node worker-0 forgot"), "{text}");
    assert!(text.contains("Node away did not forget"), "{text}");
    assert!(text.contains("`mco host forget --yes` on these machines"), "{text}");
    assert!(!records.exists(), "the records are removed");
    assert!(!root.join("var/lib/machine-config-daemon").exists(), "the ledgers are removed");
    let left = std::fs::read_to_string(root.join("etc/a")).unwrap();
    assert_eq!(left, "of a config", "the files of MachineConfigs stay");
    for name in [NODE, "away"] {
        let node = nodes.get(name).await.unwrap();
        let ours = |key: &&String| key.starts_with("machineconfiguration.openshift.io/");
        let left: Vec<_> = node.annotations().keys().filter(ours).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
    shutdown.request();
    tokio::time::timeout(PATIENCE, daemon).await.expect("the daemon stops").unwrap();
    assert!(!records.exists(), "the daemon writes no new records");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_forget_on_the_embedded_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
    nodes_forget(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_forget_on_a_real_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    nodes_forget(&server).await;
}

#[test]
fn a_machine_forgets_by_hand_unless_an_update_is_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let (root, manifests) = (folder.path().join("root"), folder.path().join("a.yaml"));
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(
        &manifests,
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\n\
         metadata: {name: 99-a, labels: {machineconfiguration.openshift.io/role: worker}}\n\
         spec: {config: {ignition: {version: 3.4.0}, storage: {files: [\
         {path: /etc/a, contents: {source: 'data:,x'}}]}}}\n",
    )
    .unwrap();
    let host = |words: &[&str]| {
        let run = mco(&["host"]).args(words).arg("--root").arg(&root).output().unwrap();
        let text = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
        (run.status.success(), text)
    };
    let file = manifests.display().to_string();
    let (_, text) = host(&["apply", "--yes", "-f", &file]);
    let ledger = root.join("var/lib/machine-config-daemon/mco-update.json");
    assert!(root.join("etc/machine-config-daemon/currentconfig").exists(), "{text}");
    std::fs::write(&ledger, "{}").unwrap();
    let (is_ok, text) = host(&["forget", "--yes"]);
    assert!(!is_ok && text.contains("mco host recover resume"), "{text}");
    assert!(root.join("etc/machine-config-daemon/currentconfig").exists());
    let (is_ok, text) = host(&["forget", "--yes", "--force"]);
    assert!(is_ok && text.contains("/etc/machine-config-daemon/currentconfig removed"), "{text}");
    assert!(root.join("etc/a").exists() && !ledger.exists());
    assert!(!root.join("etc/machine-config-daemon").exists());
    let (is_ok, text) = host(&["forget", "--yes"]);
    assert!(is_ok && text.contains("nothing to remove"), "{text}");
}
