//! The daemon on a real kube-apiserver, with no more rights than the manifests give it: what it reads
//! and what it says of its MachineConfigNode by the token of its pod, what it says of its node by the
//! kubelet's certificate.

#![expect(clippy::disallowed_methods, reason = "starts programs as a person would")]

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
    Clients, Surroundings,
    simulate::{Machine, Power, simulate},
};
use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, KubeApiServer, Programs, Settings, wait},
    pki::{Authority, Credentials},
    watching,
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
    "machineConfigSelector": {}, "configuration": {"name": "rendered-worker-1"}}},
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
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new("test").expect("an authority");
        let settings = Settings::loopback(&folder.path().join("api"));
        let server = KubeApiServer::start(&programs, &authority, &settings).expect("it starts");
        let lab = Self { server, authority, folder };
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        let file = |name: &str| deploy.join(name).display().to_string();
        lab.kubectl(&["apply", "--server-side", "-f", &file("crds")]);
        for name in ["00-namespace.yaml", "machine-config-daemon.yaml"] {
            lab.kubectl(&["apply", "-f", &file(name)]);
        }
        let objects = lab.folder.path().join("objects.json");
        std::fs::write(&objects, OBJECTS).expect("a file");
        // A kind that is established is served a little later, and found later still.
        let make = ["apply", "-f", &objects.display().to_string()];
        let done = wait("the kinds to be there", PATIENCE, || {
            lab.ask(lab.server.kubeconfig(), &make).ok()
        });
        done.expect("all objects are made");
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

    /// The credentials of the daemon's pod on worker-0, and those of worker-0's kubelet.
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

/// Waits until the MachineConfigNode says that this config is on the node and nothing is going on.
async fn wait_updated(client: &Client, config: &str) {
    let is_updated = |found: Option<&MachineConfigNode>| {
        let status = found.and_then(|found| found.status.clone()).unwrap_or_default();
        let current = status.config_version.map(|version| version.current);
        let holds = status.conditions.iter().filter(|condition| condition.status != "False");
        let holds: Vec<&str> = holds.map(|condition| condition.type_.as_str()).collect();
        current.as_deref() == Some(config) && holds == ["Updated"]
    };
    let reports: Api<MachineConfigNode> = Api::all(client.clone());
    watching::until(reports, "worker-0", config, is_updated).await.expect("it is updated");
}

async fn annotate(nodes: &Api<Node>, key: &str, value: &str) {
    let patch =
        Patch::Merge(json!({"metadata": {"annotations": {format!("{PREFIX}{key}"): value}}}));
    nodes.patch("worker-0", &PatchParams::default(), &patch).await.expect("an admin may");
}

/// Plays the drain controller.
async fn answer(nodes: &Api<Node>, request: &str) {
    let is_asked = |found: Option<&Node>| {
        let asked = found.and_then(|node| node.annotations().get(&format!("{PREFIX}desiredDrain")));
        asked.map(String::as_str) == Some(request)
    };
    watching::until(nodes.clone(), "worker-0", request, is_asked).await.expect("it asks");
    annotate(nodes, "lastAppliedDrain", request).await;
}

// covers: C06, C108, C109, C111
#[tokio::test(flavor = "multi_thread")]
async fn it_updates_its_node_and_can_touch_no_other() {
    let Some(lab) = Lab::start() else { return };
    let (pod, kubelet) = lab.identities();
    let connect = async |path: &Path| client::connect(Some(path)).await.expect("a client");
    let admin = connect(lab.server.kubeconfig()).await;
    let clients = Clients { own: connect(&pod).await, node: connect(&kubelet).await };
    let reporter = Reporter::new(clients.node.clone(), "machineconfigdaemon", NoteCount::default());
    let machine = Machine {
        node: "worker-0".parse().expect("a name"),
        root: lab.folder.path().join("root"),
        boot_time: Duration::from_millis(1),
        power: watch::Sender::new(Power::Off),
    };
    let shutdown = Shutdown::new();
    let daemon =
        tokio::spawn(simulate(machine, Surroundings::new(clients, reporter), shutdown.clone()));
    wait_updated(&admin, "rendered-worker-1").await;

    let nodes: Api<Node> = Api::all(admin.clone());
    annotate(&nodes, "desiredConfig", "rendered-worker-2").await;
    answer(&nodes, "drain-rendered-worker-2").await;
    answer(&nodes, "uncordon-rendered-worker-2").await;
    wait_updated(&admin, "rendered-worker-2").await;
    let foo = std::fs::read_to_string(lab.folder.path().join("root/etc/foo"));
    assert_eq!(foo.expect("it was written"), "2");
    let events = lab.kubectl(&["get", "events", "-A", "-o", "jsonpath={.items[*].reason}"]);
    for reason in ["Drain", "Reboot", "NodeDone"] {
        assert!(events.contains(reason), "{reason} in {events}");
    }
    shutdown.request();
    let stopped = tokio::time::timeout(PATIENCE, daemon).await.expect("it stops");
    stopped.expect("no panic").expect("no fault");

    let report = async |identity: &Path, node: &str| {
        let reports: Api<MachineConfigNode> = Api::all(connect(identity).await);
        let patch = Patch::Merge(json!({"status": {"observedGeneration": 9}}));
        let patched = reports.patch_status(node, &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| error.to_string())
    };
    // A policy is in force a little after it was made.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let refused = loop {
        match report(&pod, "worker-1").await {
            Err(refused) => break refused,
            Ok(()) => assert!(tokio::time::Instant::now() < deadline, "another node's"),
        }
    };
    let text = "updates to MCN worker-1 can only be done from the MCN's owner node";
    assert!(refused.contains(text), "{refused}");
    report(&pod, "worker-0").await.expect("its own");
    let label = ["label", "node", "worker-0", "a=b"];
    let refused = lab.ask(&pod, &label).expect_err("nodes are not its to write");
    assert!(refused.contains("cannot patch resource \"nodes\""), "{refused}");
    let token = "create token machine-config-daemon -n openshift-machine-config-operator";
    let words: Vec<&str> = token.split(' ').collect();
    let unbound = lab.kubectl(&words);
    let unbound = lab.identity("unbound", Credentials::Token(unbound.trim()));
    let refused = report(&unbound, "worker-0").await.expect_err("a token of no pod");
    let text = "this user must have a \"authentication.kubernetes.io/node-name\" claim";
    assert!(refused.contains(text), "{refused}");
}
