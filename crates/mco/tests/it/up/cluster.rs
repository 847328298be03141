//! A cluster for a test, and the actions of an administrator on it.

#![expect(
    clippy::disallowed_methods,
    reason = "the test starts programs and reads the clock and files"
)]
#![expect(clippy::panic, reason = "a panic fails the test")]

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use http::{Request, header::ACCEPT};
use mco_testkit::{
    PATIENCE,
    api::{self, Programs},
    nodes::{self, NodeSummaries, NodeSummary},
};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use super::{condition, target};
use crate::workspace;

/// The processes of a cluster.
pub(super) trait Runs {
    /// Returns the kubeconfig of an administrator.
    fn kubeconfig(&self) -> PathBuf;

    /// Returns the directory with the disk of each node.
    fn nodes(&self) -> PathBuf;

    /// Returns the lines that were printed for every change of a node.
    fn status_lines(&self) -> String;

    /// Returns the address of the config server, once known, and the certificates to trust.
    fn server(&self) -> Option<(String, PathBuf)>;

    /// Returns the logs of the processes, for failed tests.
    fn logs(&self) -> String;

    /// Kills the processes and starts them again.
    fn kill_and_start_again(&mut self);
}

/// A role of nodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nodes {
    Masters,
    Workers,
}

impl Nodes {
    /// Returns the names of the nodes.
    pub(super) fn names(self) -> [String; 3] {
        let role = match self {
            Self::Masters => "master",
            Self::Workers => "worker",
        };
        [0, 1, 2].map(|index| format!("{role}-{index}"))
    }
}

/// The annotations of a node.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) desired: String,
    pub(super) state: String,
    pub(super) reason: String,
    boot_id: String,
}

/// A watch of the nodes that records every change.
pub(super) struct Watching<'c> {
    nodes: nodes::Nodes,
    runtime: &'c Runtime,
}

impl Watching<'_> {
    /// Waits until every node satisfies the condition.
    fn wait(&self, what: &str, is: impl Fn(&str, &NodeSummary) -> bool) {
        let all =
            |views: &NodeSummaries| views.len() == 6 && views.iter().all(|(name, it)| is(name, it));
        self.runtime.block_on(self.nodes.wait(what, all)).unwrap();
    }

    /// Waits until every node satisfies the condition, and returns all changes until then.
    pub(super) fn until(
        self,
        what: &str,
        is: impl Fn(&str, &NodeSummary) -> bool,
    ) -> Vec<NodeSummaries> {
        self.wait(what, is);
        self.nodes.history()
    }
}

/// A running cluster.
pub(super) struct Cluster<R> {
    pub(super) processes: R,
    folder: tempfile::TempDir,
    runtime: Runtime,
    /// Path of `kubectl`; `mco` is used if missing.
    kubectl: Option<PathBuf>,
}

impl<R: Runs> Cluster<R> {
    /// Returns a cluster of these processes.
    pub(super) fn new(processes: R) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let built = Programs::find().ok().map(|programs| programs.kubernetes("kubectl"));
        let kubectl = built.unwrap_or_else(|| PathBuf::from("kubectl"));
        let version = Command::new(&kubectl).args(["version", "--client"]).output();
        let works = version.is_ok_and(|version| version.status.success());
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { processes, folder, runtime, kubectl: works.then_some(kubectl) }
    }

    /// Watches the nodes, which are idle and run the configs of their pools.
    pub(super) fn watch(&self, at_rest: impl Fn(&str, &NodeSummary) -> bool) -> Watching<'_> {
        let file = self.processes.kubeconfig();
        let nodes = self.runtime.block_on(async {
            nodes::Nodes::watch(mco_cluster::client::connect(Some(&file)).await.unwrap())
        });
        let watching = Watching { nodes, runtime: &self.runtime };
        watching.wait("the nodes to be at rest", at_rest);
        drop(watching.nodes.history());
        watching
    }

    /// Runs requests with the client of the administrator.
    pub(super) fn with_client<T>(&self, run: impl AsyncFnOnce(kube::Client) -> T) -> T {
        let file = self.processes.kubeconfig();
        self.runtime
            .block_on(async { run(mco_cluster::client::connect(Some(&file)).await.unwrap()).await })
    }

    /// Polls until `look` returns a value.
    pub(super) fn wait<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        api::wait(what, PATIENCE, look).unwrap_or_else(|error| {
            let status = self.mco(&["status"]);
            panic!(
                "{error}\n{}{}\n{}",
                String::from_utf8_lossy(&status.stdout),
                String::from_utf8_lossy(&status.stderr),
                self.processes.logs(),
            )
        })
    }

    /// Waits until all nodes of a pool run its config, which differs from `before`.
    pub(super) fn wait_updated(&self, pool: &str, before: &str) -> String {
        self.wait(&format!("pool {pool} to be Updated to another config than {before:?}"), || {
            let object = self.get("mcp", pool);
            let name = target(&object);
            let has = object.pointer("/status/configuration/name").and_then(Value::as_str);
            let updated = condition(&object, "Updated").0 == "True" && has == Some(name.as_str());
            let machines = object.pointer("/status/machineCount").and_then(Value::as_u64);
            let all = machines == Some(3);
            (updated && all && !name.is_empty() && name != before).then_some(name)
        })
    }

    /// Returns an object; null if missing.
    pub(super) fn get(&self, kind: &str, name: &str) -> Value {
        let output = self.kubectl(&["get", kind, name, "-o", "json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Returns the table of all objects of a kind.
    pub(super) fn table(&self, kind: &str) -> String {
        text(&self.kubectl(&["get", kind]))
    }

    /// Returns the annotations of a node.
    pub(super) fn node(&self, name: &str) -> NodeState {
        let node = self.get("node", name);
        let text = |key: &str| {
            let value = &node["metadata"]["annotations"]
                [format!("machineconfiguration.openshift.io/{key}")];
            value.as_str().unwrap_or_default().to_owned()
        };
        let boot_id = node.pointer("/status/nodeInfo/bootID").and_then(Value::as_str);
        NodeState {
            desired: text("desiredConfig"),
            state: text("state"),
            reason: text("reason"),
            boot_id: boot_id.unwrap_or_default().to_owned(),
        }
    }

    /// Returns the boot id of a machine from its disk, once its node reports the same.
    pub(super) fn boot_id(&self, node: &str) -> String {
        let state =
            self.read(node, "var/lib/mco-simulated/state.json").expect("the machine booted");
        let state: Value = serde_json::from_str(&state).unwrap();
        let boot_id = state["bootId"].as_str().expect("the state has a boot id").to_owned();
        self.wait("the kubelet to report the boot", || {
            (self.node(node).boot_id == boot_id).then_some(())
        });
        boot_id
    }

    /// Writes a file and returns its path.
    pub(super) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    pub(super) fn apply(&self, path: &str) {
        succeed(&self.kubectl(&["apply", "-f", path]));
    }

    pub(super) fn delete(&self, kind: &str, name: &str) {
        succeed(&self.kubectl(&["delete", kind, name]));
    }

    pub(super) fn pause(&self, pool: &str, paused: bool) {
        let patch = format!("{{\"spec\":{{\"paused\":{paused}}}}}");
        self.merge(pool, &patch, &format!("spec:\n  paused: {paused}\n"));
    }

    /// Sets a label of a pool.
    pub(super) fn label(&self, pool: &str, key: &str, value: &str) {
        let patch = format!("{{\"metadata\":{{\"labels\":{{{key:?}:{value:?}}}}}}}");
        self.merge(pool, &patch, &format!("  labels:\n    {key}: {value}\n"));
    }

    /// Merges a patch into a pool. Without kubectl, applies a manifest whose text after the name is
    /// `lines`.
    fn merge(&self, pool: &str, patch: &str, lines: &str) {
        if self.kubectl.is_some() {
            succeed(&self.kubectl(&["patch", "mcp", pool, "--type", "merge", "-p", patch]));
            return;
        }
        let file = self.folder.path().join("pool.yaml");
        let manifest = format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n\
             metadata:\n  name: {pool}\n{lines}"
        );
        fs::write(&file, manifest).unwrap();
        let file = file.display().to_string();
        succeed(&self.kubectl(&["apply", "--force-conflicts", "-f", &file]));
    }

    /// Returns the name of the config that `mco render` renders from the objects of the cluster.
    pub(super) fn rendered_offline(&self, pool: &str) -> String {
        let inputs = self.kubectl(&["get", "mc,mcp,controllerconfig", "-o", "yaml"]);
        succeed(&inputs);
        let path = self.folder.path().join("inputs.yaml");
        fs::write(&path, inputs.stdout).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        let output = command.args(["render", "--pool", pool, "-f"]).arg(path).output().unwrap();
        text(&output).trim().to_owned()
    }

    /// Returns the config that the server serves to a new machine; `None` if the server is not
    /// ready.
    pub(super) fn served(&self, pool: &str) -> Option<Value> {
        let (address, chain) = self.processes.server()?;
        let chain = fs::read(chain).unwrap();
        let request = Request::get(format!("/config/{pool}"))
            .header(ACCEPT, "application/vnd.coreos.ignition+json;version=3.4.0")
            .body(Vec::new())
            .unwrap();
        self.runtime.block_on(async {
            mco_cluster::client::use_ring();
            let mut config = kube::Config::new(address.parse().unwrap());
            config.root_cert = Some(certificates(&chain));
            let client = kube::Client::try_from(config).unwrap();
            client.request(request).await.ok()
        })
    }

    /// Returns the text of a file on a node's disk.
    pub(super) fn read(&self, node: &str, path: &str) -> Option<String> {
        fs::read_to_string(self.disk(node, path)).ok()
    }

    /// Changes a file on a node's disk.
    pub(super) fn write(&self, node: &str, path: &str, contents: &str) {
        fs::write(self.disk(node, path), contents).unwrap();
    }

    /// Returns true if the path exists on a node's disk.
    pub(super) fn has(&self, node: &str, path: &str) -> bool {
        fs::symlink_metadata(self.disk(node, path)).is_ok()
    }

    fn disk(&self, node: &str, path: &str) -> PathBuf {
        self.processes.nodes().join(node).join(path)
    }

    /// Returns true if `kubectl` can be run.
    pub(super) fn has_kubectl(&self) -> bool {
        self.kubectl.is_some()
    }

    /// Runs `kubectl`, or `mco` if `kubectl` is missing.
    pub(super) fn kubectl(&self, args: &[&str]) -> Output {
        let Some(kubectl) = &self.kubectl else { return self.mco(args) };
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(self.processes.kubeconfig());
        command.args(args).current_dir(workspace()).output().unwrap()
    }

    fn mco(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        command.args(args).arg("--kubeconfig").arg(self.processes.kubeconfig());
        command.env("NO_COLOR", "1").current_dir(workspace()).output().unwrap()
    }
}

pub(super) fn succeed(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

pub(super) fn text(output: &Output) -> String {
    succeed(output);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the certificates of a PEM file, as bytes.
fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    CertificateDer::pem_slice_iter(pem).map(|found| found.unwrap().to_vec()).collect()
}
