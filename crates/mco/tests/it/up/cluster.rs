//! A cluster of `mco up` for a test, and what a person at a terminal can do with it.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs, looks at the clock and at files as a person would"
)]
#![expect(clippy::panic, reason = "a test that panics has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use http::{Request, header::ACCEPT};
use serde_json::Value;

use super::{condition, target};
use crate::workspace;

/// Longer than anything takes on a busy machine; every wait says what it was for.
const PATIENCE: Duration = Duration::from_secs(90);

/// Which nodes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nodes {
    Masters,
    Workers,
}

impl Nodes {
    /// Their names.
    pub(super) fn names(self) -> [String; 3] {
        let role = match self {
            Self::Masters => "master",
            Self::Workers => "worker",
        };
        [0, 1, 2].map(|index| format!("{role}-{index}"))
    }
}

/// What a node says of itself.
#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) desired: String,
    pub(super) state: String,
    pub(super) reason: String,
    pub(super) boot_id: String,
}

/// A running `mco up`.
pub(super) struct Cluster {
    folder: tempfile::TempDir,
    child: Child,
    kubectl: bool,
    starts: usize,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Cluster {
    /// Starts one with three masters and three workers.
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = spawn(folder.path(), 0);
        let version = Command::new("kubectl").args(["version", "--client"]).output();
        let kubectl = version.is_ok_and(|version| version.status.success());
        let cluster = Self { folder, child, kubectl, starts: 1 };
        cluster.wait_ready();
        cluster
    }

    fn wait_ready(&self) {
        let marker = "Try in another terminal";
        self.wait("mco up to be ready", || self.output().contains(marker).then_some(()));
    }

    pub(super) fn dir(&self) -> PathBuf {
        self.folder.path().join("mco")
    }

    /// Everything that the present process has written to standard output.
    pub(super) fn output(&self) -> String {
        fs::read_to_string(log(self.folder.path(), self.starts - 1)).unwrap_or_default()
    }

    /// Looks again and again until there is something to see.
    pub(super) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            if start.elapsed() > PATIENCE {
                let status = self.mco(&["status"]);
                panic!(
                    "waited {PATIENCE:?} in vain for {what}\n{}{}\noutput of mco up:\n{}{}",
                    String::from_utf8_lossy(&status.stdout),
                    String::from_utf8_lossy(&status.stderr),
                    self.output(),
                    fs::read_to_string(self.folder.path().join("errors")).unwrap_or_default(),
                );
            }
            std::thread::yield_now();
        }
    }

    /// Waits until all machines of a pool have its config, another one than `before`.
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

    /// An object; null where there is none yet.
    pub(super) fn get(&self, kind: &str, name: &str) -> Value {
        let output = self.ask(&["get", kind, name, "-o", "json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// What a person sees of all objects of a kind.
    pub(super) fn table(&self, kind: &str) -> String {
        text(&self.ask(&["get", kind]))
    }

    /// The annotations of a node that matter.
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

    pub(super) fn apply(&self, path: &str) {
        succeed(&self.ask(&["apply", "-f", path]));
    }

    pub(super) fn delete(&self, kind: &str, name: &str) {
        succeed(&self.ask(&["delete", kind, name]));
    }

    pub(super) fn pause(&self, pool: &str, paused: bool) {
        if self.kubectl {
            let patch = format!("{{\"spec\":{{\"paused\":{paused}}}}}");
            succeed(&self.ask(&["patch", "mcp", pool, "--type", "merge", "-p", &patch]));
            return;
        }
        let path = self.folder.path().join("pool.yaml");
        let manifest = format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n\
             metadata:\n  name: {pool}\nspec:\n  paused: {paused}\n"
        );
        fs::write(&path, manifest).unwrap();
        let path = path.display().to_string();
        succeed(&self.ask(&["apply", "--force-conflicts", "-f", &path]));
    }

    /// The name that `mco render` gives the config of a pool from the cluster's own objects.
    pub(super) fn rendered_offline(&self, pool: &str) -> String {
        let inputs = self.ask(&["get", "mc,mcp,controllerconfig", "-o", "yaml"]);
        succeed(&inputs);
        let path = self.folder.path().join("inputs.yaml");
        fs::write(&path, inputs.stdout).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        let output = command.args(["render", "--pool", pool, "-f"]).arg(path).output().unwrap();
        text(&output).trim().to_owned()
    }

    /// What the config server hands to a new machine of the pool.
    pub(super) fn served(&self, pool: &str) -> Value {
        let output = self.output();
        let address = output.lines().find_map(|line| line.strip_prefix("Config server"));
        let address = address.unwrap().trim().rsplit_once("/config/").unwrap().0.to_owned();
        let chain = fs::read(self.dir().join("server/tls.crt")).unwrap();
        let request = Request::get(format!("/config/{pool}"))
            .header(ACCEPT, "application/vnd.coreos.ignition+json;version=3.4.0")
            .body(Vec::new())
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            mco_cluster::client::use_ring();
            let mut config = kube::Config::new(address.parse().unwrap());
            config.root_cert = Some(certificates(&chain));
            let client = kube::Client::try_from(config).unwrap();
            client.request(request).await.unwrap()
        })
    }

    /// What a second `mco up` on the same directory says.
    pub(super) fn second_start(&self) -> String {
        let output = self.mco(&["up"]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Ends the process the hard way and starts another one.
    pub(super) fn kill_and_start_again(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.folder.path(), self.starts);
        self.starts += 1;
        self.wait_ready();
    }

    pub(super) fn down_and_purge(&self) -> String {
        text(&self.mco(&["down", "--purge"]))
    }

    /// Waits for the process to end well.
    pub(super) fn wait_end(&mut self, patience: Duration) {
        let start = Instant::now();
        while start.elapsed() < patience {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::yield_now();
        }
        panic!("mco up did not end");
    }

    /// The text of a file on a node's disk.
    pub(super) fn read(&self, node: &str, path: &str) -> Option<String> {
        fs::read_to_string(self.disk(node, path)).ok()
    }

    /// Changes a file on a node's disk behind everybody's back.
    pub(super) fn write(&self, node: &str, path: &str, contents: &str) {
        fs::write(self.disk(node, path), contents).unwrap();
    }

    /// Whether there is something at that path of a node's disk.
    pub(super) fn has(&self, node: &str, path: &str) -> bool {
        fs::symlink_metadata(self.disk(node, path)).is_ok()
    }

    fn disk(&self, node: &str, path: &str) -> PathBuf {
        self.dir().join("nodes").join(node).join(path)
    }

    /// Runs `kubectl`, or `mco` where there is none.
    fn ask(&self, args: &[&str]) -> Output {
        if !self.kubectl {
            return self.mco(args);
        }
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.dir().join("kubeconfig"));
        command.args(args).current_dir(workspace()).output().unwrap()
    }

    fn mco(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        command.args(args).arg("--dir").arg(self.dir()).env_remove("KUBECONFIG");
        command.env("NO_COLOR", "1").current_dir(workspace()).output().unwrap()
    }
}

fn log(folder: &Path, start: usize) -> PathBuf {
    folder.join(format!("output-{start}"))
}

fn spawn(folder: &Path, start: usize) -> Child {
    let errors = fs::OpenOptions::new().create(true).append(true).open(folder.join("errors"));
    Command::new(env!("CARGO_BIN_EXE_mco"))
        .args(["up", "--verbose", "--dir"])
        .arg(folder.join("mco"))
        .stdin(Stdio::null())
        .stdout(fs::File::create(log(folder, start)).unwrap())
        .stderr(errors.unwrap())
        .spawn()
        .unwrap()
}

fn succeed(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn text(output: &Output) -> String {
    succeed(output);
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The certificates of a PEM file, as bytes.
fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    CertificateDer::pem_slice_iter(pem).map(|found| found.unwrap().to_vec()).collect()
}
