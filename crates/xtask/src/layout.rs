//! Finds the order in which the linker places the functions of the shipped binary.
//!
//! The kernel maps 64 kB of a program for each page that is touched. Of 27,000 functions a daemon
//! uses 3,000, a seventh of the program, but they are spread over all of it, so that two thirds of
//! the program would be in memory on every node. This module runs a small cluster, traces its
//! processes, and lists the functions they used; `crates/mco/build.rs` has the linker place those
//! first.

#![expect(clippy::disallowed_methods, reason = "a development tool runs the program it is given")]

mod requests;
mod trace;

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use self::requests::Client;
pub use self::trace::trace;

/// Limit for each wait. Traced processes start slowly.
const PATIENCE: Duration = Duration::from_mins(5);

/// Time for which idle processes are traced, so that they renew leases and watches.
const REST: Duration = Duration::from_secs(15);

/// A MachineConfig that starts a rollout.
const CHANGE: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-layout
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      files: [{path: /etc/layout, mode: 420, contents: {source: 'data:,x'}}]
";

/// Runs a small cluster of `program` in `folder` and writes the functions that ran to `order`.
///
/// Functions of the daemon come first, because most processes of a cluster are daemons.
pub fn write(program: &Path, folder: &Path, order: &Path) -> anyhow::Result<()> {
    let cluster = SmallCluster::start(program, folder)?;
    let before = cluster.wait_for("the workers have their config", |_| true)?;
    let change = folder.join("change.yaml");
    fs::write(&change, CHANGE)?;
    cluster.ask(&["apply", "-f", &change.display().to_string()])?;
    cluster.wait_for("the workers have another config", |config| *config != before)?;
    wait_until("the config server serves the pool", || cluster.client.request_all().ok())?;
    thread::sleep(REST);
    let mut seen = HashSet::new();
    let mut text = String::new();
    for list in cluster.end()? {
        let list = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        // Sorted by name: no two runs have the same order, and two builds should be alike.
        let names: BTreeSet<&str> = list.lines().collect();
        for name in names {
            if seen.insert(name.to_owned()) {
                text.extend([name, "\n"]);
            }
        }
    }
    fs::write(order, text).with_context(|| order.display().to_string())
}

/// A cluster with two nodes.
struct SmallCluster {
    program: PathBuf,
    folder: PathBuf,
    watched: Vec<(PathBuf, Child)>,
    others: Vec<Child>,
    client: Client,
}

impl Drop for SmallCluster {
    fn drop(&mut self) {
        for child in self.others.iter_mut().chain(self.watched.iter_mut().map(|(_, child)| child)) {
            // A child that has already exited needs no signal.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl SmallCluster {
    fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.to_owned();
        fs::create_dir_all(folder.join("nodes"))?;
        let (watched, others) = (Vec::new(), Vec::new());
        let client = Client::prepare(&folder)?;
        let mut cluster = Self { program: program.to_owned(), folder, watched, others, client };
        let api = cluster.path("api");
        cluster.run(&["apiserver", "--dir", &api, "--listen", "127.0.0.1:0"])?;
        let kubeconfig = cluster.folder.join("api/kubeconfig");
        wait_until("the API server has written its kubeconfig", || {
            kubeconfig.exists().then_some(())
        })?;
        let (kubeconfig, nodes) = (kubeconfig.display().to_string(), cluster.path("nodes"));
        let to = ["--kubeconfig", &kubeconfig];
        let own = [&to[..], &["--metrics-listen-address", "127.0.0.1:0"]].concat();
        let machines = ["--nodes-dir", &nodes, "--nodes", "2", "--masters", "1"];
        cluster.run(&[&["surroundings"], &to[..], &machines].concat())?;
        for node in ["worker-0", "worker-1", "master-0"] {
            let root = cluster.path(&format!("nodes/{node}"));
            let words = ["daemon", "start", "--boot-seconds", "1", "--root-mount", &root];
            let words = [&words[..], &["--node-name", node], &own].concat();
            if node == "worker-0" { cluster.watch(node, &words)? } else { cluster.run(&words)? }
        }
        for role in ["controller", "operator"] {
            cluster.watch(role, &[&[role, "start"], &own[..]].concat())?;
        }
        let words = ["server", "start", "--apiserver-url", "https://127.0.0.1:6443"];
        let settings = cluster.client.server_settings();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let words = [&words[..], &["--without-kubeconfig"], &settings, &own].concat();
        cluster.watch("server", &words)?;
        Ok(cluster)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn run(&mut self, words: &[&str]) -> anyhow::Result<()> {
        let log = File::create(self.folder.join(format!("{}.log", self.others.len())))?;
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.others.push(command.spawn().with_context(|| self.program.display().to_string())?);
        Ok(())
    }

    /// Starts a process below a tracer of its own, because ptrace ties a process to one thread.
    fn watch(&mut self, name: &str, words: &[&str]) -> anyhow::Result<()> {
        let list = self.folder.join(format!("{name}.order"));
        let log = File::create(self.folder.join(format!("{name}.log")))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("trace").arg(&list).arg(&self.program).args(words);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        self.watched.push((list, command.spawn()?));
        Ok(())
    }

    fn ask(&self, words: &[&str]) -> anyhow::Result<Option<String>> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--kubeconfig").arg(self.folder.join("api/kubeconfig"));
        let output = command.output().with_context(|| self.program.display().to_string())?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    }

    /// Waits until both workers run the config of their pool, and `right` accepts it.
    fn wait_for(&self, what: &str, right: impl Fn(&String) -> bool) -> anyhow::Result<String> {
        wait_until(what, || {
            let pools = self.ask(&["get", "mcp", "worker", "-o", "json"]).ok()??;
            let pools: serde_json::Value = serde_json::from_str(&pools).ok()?;
            let pool = pools.pointer("/items/0").unwrap_or(&pools);
            let count = |key: &str| pool.pointer(&format!("/status/{key}"))?.as_u64();
            let counts = ["machineCount", "updatedMachineCount", "readyMachineCount"];
            let config = pool.pointer("/status/configuration/name")?.as_str()?.to_owned();
            let is_settled = counts.iter().all(|key| count(key) == Some(2));
            (is_settled && right(&config)).then_some(config)
        })
    }

    /// Stops the traced processes and returns the files with the functions they used.
    fn end(mut self) -> anyhow::Result<Vec<PathBuf>> {
        let mut lists = Vec::new();
        for (list, mut child) in self.watched.drain(..) {
            // The tracer stops its process when its input ends.
            drop(child.stdin.take());
            if !child.wait()?.success() {
                bail!("see {}", list.with_extension("log").display());
            }
            lists.push(list);
        }
        Ok(lists)
    }
}

fn wait_until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(value) = is() {
            return Ok(value);
        }
        thread::sleep(Duration::from_millis(200));
    }
    bail!("timed out after {PATIENCE:?} waiting until {what}")
}
