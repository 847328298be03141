//! The daemon on a real kube-apiserver, with only the rights of the manifests: with the token of
//! its pod it reads and writes its MachineConfigNode, with the kubelet's certificate it writes its
//! node.

#![expect(clippy::disallowed_methods, reason = "starts programs like an administrator")]

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use mco_api::MachineConfigNode;
use mco_cluster::{NoteCount, Reporter, Shutdown, client};
use mco_daemon::{
    Clients, DaemonContext,
    simulate::{FirstConfig, Machine, Power, simulate},
};
use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, KubeApiServer, Programs, Settings, account, wait},
    object_wait,
    pki::{Authority, Credentials},
};
use serde_json::json;
use tokio::sync::watch;

const PREFIX: &str = "machineconfiguration.openshift.io/";

const OBJECTS: &str = r#"
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-0",
    "labels": {"node-role.kubernetes.io/worker": ""}}},
  {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}},
  {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
   "metadata": {"name": "worker"}, "spec": {
    "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
    "machineConfigSelector": {"matchLabels": {
      "machineconfiguration.openshift.io/role": "worker"}},
    "configuration": {"name": "rendered-worker-1"}}},
  {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
   "metadata": {"name": "rendered-worker-1"}, "spec": {"config": {"ignition": {"version": "3.5.0"}}}},
  {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
   "metadata": {"name": "rendered-worker-2"}, "spec": {"config": {"ignition": {"version": "3.5.0"},
    "storage": {"files": [{"path": "/etc/foo", "contents": {"source": "data:,2"}}]}}}},
  {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
   "metadata": {"name": "worker-0"}, "spec": {"node": {"name": "worker-0"},
    "pool": {"name": "worker"}, "configVersion": {"desired": "rendered-worker-1"}}},
  {"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigNode",
   "metadata": {"name": "worker-1"}, "spec": {"node": {"name": "worker-1"},
    "pool": {"name": "worker"}, "configVersion": {"desired": "rendered-worker-1"}}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "daemon",
    "namespace": "openshift-machine-config-operator"}, "spec": {"nodeName": "worker-0",
    "serviceAccountName": "machine-config-daemon", "containers": [{"name": "c", "image": "i"}]}}
]}"#;

struct Lab {
    server: KubeApiServer,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Lab {
    fn start() -> Option<Self> {
        let programs = match Programs::find() {
            Ok(programs) => programs,
            Err(absent) => {
                let _ = writeln!(std::io::stderr(), "skipped: {absent}");
                return None;
            }
        };
        let folder = tempfile::tempdir().expect("a temporary directory can be created");
        let authority = Authority::new("test").expect("an authority can be created");
        let settings = Settings::loopback(&folder.path().join("api"));
        let server =
            KubeApiServer::start(&programs, &authority, &settings).expect("kube-apiserver starts");
        let lab = Self { server, authority, folder };
        let kinds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        lab.kubectl(&["apply", "--server-side", "-f", &kinds.display().to_string()]);
        account(&lab.server, "machine-config-daemon").expect("the rights of the daemon");
        let objects = lab.folder.path().join("objects.json");
        std::fs::write(&objects, OBJECTS).expect("a file");
        // An established kind is served with a delay, and discovered even later.
        let make = ["apply", "-f", &objects.display().to_string()];
        let mut refusal = String::new();
        let done = wait("the kinds to be served", PATIENCE, || {
            lab.ask(lab.server.kubeconfig(), &make).map_err(|error| refusal = error).ok()
        });
        done.unwrap_or_else(|error| panic!("{error}: {refusal}"));
        Some(lab)
    }

    fn ask(&self, kubeconfig: &Path, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.server.kubectl());
        command.arg("--kubeconfig").arg(kubeconfig).args(words).stdin(Stdio::null());
        let output = command.output().expect("kubectl runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn kubectl(&self, words: &[&str]) -> String {
        self.ask(self.server.kubeconfig(), words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn identity(&self, name: &str, credentials: Credentials<'_>) -> PathBuf {
        let path = self.folder.path().join(name);
        let text = self.authority.kubeconfig(self.server.url(), credentials);
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// Returns the kubeconfigs of the daemon's pod on worker-0 and of worker-0's kubelet.
    fn identities(&self) -> (PathBuf, PathBuf) {
        let space = ["-n", "openshift-machine-config-operator"];
        let uid =
            [&["get", "pod", "daemon", "-o", "jsonpath={.metadata.uid}"][..], &space].concat();
        let uid = self.kubectl(&uid);
        let bound = ["--bound-object-kind=Pod", "--bound-object-name=daemon"];
        let uid = format!("--bound-object-uid={uid}");
        let words = [&["create", "token", "machine-config-daemon", &uid][..], &bound, &space];
        let token = self.kubectl(&words.concat());
        let pod = self.identity("pod", Credentials::Token(token.trim()));
        let pair = self.authority.user("system:node:worker-0", Some("system:nodes"));
        let pair = pair.expect("a certificate");
        (pod, self.identity("kubelet", Credentials::Certificate(&pair)))
    }
}

/// Waits until the MachineConfigNode reports this config and no update in progress.
async fn wait_updated(client: &Client, config: &str) {
    let is_updated = |found: Option<&MachineConfigNode>| {
        let status = found.and_then(|found| found.status.clone()).unwrap_or_default();
        let current = status.config_version.map(|version| version.current);
        let holds = status.conditions.iter().filter(|condition| condition.status != "False");
        let holds: Vec<&str> = holds.map(|condition| condition.type_.as_str()).collect();
        current.as_deref() == Some(config) && holds == ["Updated"]
    };
    let reports: Api<MachineConfigNode> = Api::all(client.clone());
    object_wait::wait_until(reports, "worker-0", config, is_updated)
        .await
        .expect("the node is updated");
}

async fn annotate(nodes: &Api<Node>, key: &str, value: &str) {
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}}));
    nodes
        .patch("worker-0", &PatchParams::default(), &patch)
        .await
        .expect("an administrator may patch nodes");
}

/// Acts as the drain controller.
async fn answer(nodes: &Api<Node>, request: &str) {
    let is_asked = |found: Option<&Node>| {
        let asked = found.and_then(|node| node.annotations().get(&format!("{PREFIX}desiredDrain")));
        asked.map(String::as_str) == Some(request)
    };
    object_wait::wait_until(nodes.clone(), "worker-0", request, is_asked)
        .await
        .expect("the daemon requests it");
    annotate(nodes, "lastAppliedDrain", request).await;
}

// covers: C06, C108, C109, C111
#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_updates_its_node_and_no_other() {
    let Some(lab) = Lab::start() else { return };
    let (pod, kubelet) = lab.identities();
    let connect =
        async |path: &Path| client::connect(Some(path)).await.expect("the kubeconfig is valid");
    let admin = connect(lab.server.kubeconfig()).await;
    let clients = Clients { own: connect(&pod).await, node: connect(&kubelet).await };
    let reporter = Reporter::new(clients.node.clone(), "machineconfigdaemon", NoteCount::default());
    let machine = Machine {
        node: "worker-0".parse().expect("the name is valid"),
        root: lab.folder.path().join("root"),
        boot_time: Duration::from_millis(1),
        power: watch::Sender::new(Power::Off),
        first: FirstConfig::ApiServer,
    };
    let shutdown = Shutdown::new();
    let daemon =
        tokio::spawn(simulate(machine, DaemonContext::new(clients, reporter), shutdown.clone()));
    wait_updated(&admin, "rendered-worker-1").await;

    let nodes: Api<Node> = Api::all(admin.clone());
    annotate(&nodes, "desiredConfig", "rendered-worker-2").await;
    answer(&nodes, "drain-rendered-worker-2").await;
    answer(&nodes, "uncordon-rendered-worker-2").await;
    wait_updated(&admin, "rendered-worker-2").await;
    let foo = std::fs::read_to_string(lab.folder.path().join("root/etc/foo"));
    assert_eq!(foo.expect("the file was written"), "2");
    let events = lab.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"]);
    for reason in ["Drain", "Reboot", "NodeDone"] {
        assert!(events.contains(reason), "{reason} in {events}");
    }
    shutdown.request();
    let stopped = tokio::time::timeout(PATIENCE, daemon).await.expect("the daemon stops");
    stopped.expect("the daemon does not panic").expect("the daemon does not fail");

    let report = async |identity: &Path, node: &str| {
        let reports: Api<MachineConfigNode> = Api::all(connect(identity).await);
        let patch = Patch::Merge(json!({"status": {"observedGeneration": 9}}));
        let patched = reports.patch_status(node, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    // A new ValidatingAdmissionPolicy takes effect with a delay.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let refused = loop {
        match report(&pod, "worker-1").await {
            Err(refused) => break refused,
            Ok(()) => assert!(
                tokio::time::Instant::now() < deadline,
                "another node's MachineConfigNode was written"
            ),
        }
    };
    let text = "updates to MCN worker-1 can only be done from the MCN's owner node";
    assert!(refused.contains(text), "{refused}");
    report(&pod, "worker-0").await.expect("the daemon may write its own MachineConfigNode");
    let label = ["label", "node", "worker-0", "a=b"];
    let refused = lab.ask(&pod, &label).expect_err("the daemon's pod may not write nodes");
    assert!(refused.contains("cannot patch resource \"nodes\""), "{refused}");
    let token = "create token machine-config-daemon -n openshift-machine-config-operator";
    let words: Vec<&str> = token.split(' ').collect();
    let unbound = lab.kubectl(&words);
    let unbound = lab.identity("unbound", Credentials::Token(unbound.trim()));
    let refused = report(&unbound, "worker-0").await.expect_err("the token is not bound to a pod");
    let text = "this user must have a \"authentication.kubernetes.io/node-name\" claim";
    assert!(refused.contains(text), "{refused}");
}
