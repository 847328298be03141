//! In which order the functions of the shipped program best lie.
//!
//! The kernel maps 64 kB of a program for each page that is touched. Of our 27,000 functions a daemon uses
//! 3,000, which are a seventh of the program; but they lie everywhere in it, so two thirds of it would be
//! in memory on every machine. A small cluster is run here, its processes are watched, and the linker
//! then puts first what they used (`crates/mco/build.rs`).

#![expect(clippy::disallowed_methods, reason = "a development tool runs the program it is given")]

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

pub use self::trace::trace;

/// How long anything in the small cluster may take. Watched processes start slowly.
const PATIENCE: Duration = Duration::from_mins(5);

/// How long the processes are watched while they have nothing to do: leases and watches are renewed.
const REST: Duration = Duration::from_secs(15);

/// A config, so that a change is rolled out.
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

/// Runs a small cluster of `program` in `folder`, and writes which of its functions run to `order`.
///
/// What the daemons use comes first: there are most of them.
pub fn write(program: &Path, folder: &Path, order: &Path) -> anyhow::Result<()> {
    let scene = Scene::start(program, folder)?;
    let before = scene.wait_for("the workers have their config", |_| true)?;
    let change = folder.join("change.yaml");
    fs::write(&change, CHANGE)?;
    scene.ask(&["apply", "-f", &change.display().to_string()])?;
    scene.wait_for("the workers have another config", |config| *config != before)?;
    thread::sleep(REST);
    let mut seen = HashSet::new();
    let mut text = String::new();
    for list in scene.end()? {
        let list = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        // By name, because no two runs have the same order, and two builds should be alike.
        let names: BTreeSet<&str> = list.lines().collect();
        for name in names {
            if seen.insert(name.to_owned()) {
                text.extend([name, "\n"]);
            }
        }
    }
    fs::write(order, text).with_context(|| order.display().to_string())
}

/// A cluster of two machines.
struct Scene {
    program: PathBuf,
    folder: PathBuf,
    watched: Vec<(PathBuf, Child)>,
    others: Vec<Child>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in self.others.iter_mut().chain(self.watched.iter_mut().map(|(_, child)| child)) {
            // One that has ended by itself needs no end.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Scene {
    fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.to_owned();
        fs::create_dir_all(folder.join("nodes"))?;
        let (watched, others) = (Vec::new(), Vec::new());
        let mut scene = Self { program: program.to_owned(), folder, watched, others };
        let api = scene.path("api");
        scene.run(&["apiserver", "--dir", &api, "--listen", "127.0.0.1:0"])?;
        let kubeconfig = scene.folder.join("api/kubeconfig");
        wait_until("there is an API server", || kubeconfig.exists().then_some(()))?;
        let (kubeconfig, nodes) = (kubeconfig.display().to_string(), scene.path("nodes"));
        let to = ["--kubeconfig", &kubeconfig];
        let own = [&to[..], &["--metrics-listen-address", "127.0.0.1:0"]].concat();
        let machines = ["--nodes-dir", &nodes, "--nodes", "2", "--masters", "1"];
        scene.run(&[&["surroundings"], &to[..], &machines].concat())?;
        for node in ["worker-0", "worker-1", "master-0"] {
            let root = scene.path(&format!("nodes/{node}"));
            let words = ["daemon", "start", "--boot-seconds", "1", "--root-mount", &root];
            let words = [&words[..], &["--node-name", node], &own].concat();
            if node == "worker-0" { scene.watch(node, &words)? } else { scene.run(&words)? }
        }
        for role in ["controller", "operator"] {
            scene.watch(role, &[&[role, "start"], &own[..]].concat())?;
        }
        Ok(scene)
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

    /// Runs one below this very program, because a process is watched by one thread of another.
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

    /// Waits until both workers have the config that their pool has, and it is `right`.
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

    /// Ends the watched processes, and returns the lists of what they used.
    fn end(mut self) -> anyhow::Result<Vec<PathBuf>> {
        let mut lists = Vec::new();
        for (list, mut child) in self.watched.drain(..) {
            // The end of its input asks it to end.
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
    bail!("waited in vain until {what}")
}
