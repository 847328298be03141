//! Measures the speed and size of the daemon, each figure beside the limit of the machine itself.
//!
//! `cargo bench -p mco-daemon` after `make dist`: the measured process is the shipped binary. The
//! cluster is the embedded API server; the machine is a directory.

#![expect(clippy::disallowed_methods, reason = "measures a machine from outside")]

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::Node,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams, runtime::wait::await_condition};
use mco_api::{MachineConfig, MachineConfigPool};
use mco_apiserver::{ApiServer, Listener, Settings};
use mco_apply::{disk, first_boot, verify};
use mco_cluster::{NoteCount, Reporter, Shutdown, client, telemetry};
use mco_core::machine::Machine;
use mco_daemon::{DaemonContext, state::SharedState};
use mco_host::{Host, Root, SimulatedSystem};
use serde_json::json;

const FILES: usize = 1000;
/// Files of an ordinary config.
const FEW_FILES: usize = 100;
const ROUNDS: usize = 20;
/// Environment variable that makes a process of this program a daemon: the machine's directory and
/// the kubeconfig.
const ROLE: &str = "MCO_BENCH_DAEMON";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match env::var(ROLE) {
        Ok(role) => runtime.block_on(daemon(&role)),
        Err(_) => runtime.block_on(measure()),
    }
}

fn say(what: &str, found: &str, limit: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{what:<44} {found:>14}   {limit}")
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

async fn measure() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    let many = config(FILES)?;
    install(&root, &many)?;
    no_op_sync(&root)?;
    let api = ApiServer::in_memory(Settings::default()).await?;
    let client = Client::new(api.clone(), "default");
    create_objects(&client, &many).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    first_sync(&client, &root).await?;
    drift(&client, &nodes, &root).await?;
    process(api, &folder.path().join("api"), &root, FILES).await?;

    let root = folder.path().join("ordinary");
    let few = config(FEW_FILES)?;
    install(&root, &few)?;
    let api = ApiServer::in_memory(Settings::default()).await?;
    create_objects(&Client::new(api.clone(), "default"), &few).await?;
    process(api, &folder.path().join("another-api"), &root, FEW_FILES).await
}

/// Builds a config with that many small files.
fn config(files: usize) -> Outcome<MachineConfig> {
    let file = |number: usize| {
        let text = format!("data:,{}", format!("setting-{number}-").repeat(20));
        json!({"path": format!("/etc/many/{}/{number}", number % 20), "contents": {"source": text}})
    };
    let files: Vec<_> = (0..files).map(file).collect();
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-1"},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}}
    });
    Ok(serde_json::from_str(&object.to_string())?)
}

fn open(path: &Path) -> Outcome<Host<SimulatedSystem>> {
    let root = Root::create(path)?;
    Ok(Host { system: SimulatedSystem::open(&root)?, root })
}

fn install(path: &Path, config: &MachineConfig) -> Outcome<()> {
    let mut host = open(path)?;
    SimulatedSystem::write_base_files(&host.root)?;
    first_boot::provision(&mut host, config)?;
    host.system.boot()?;
    Ok(())
}

/// Returns the best of some rounds, to exclude other load of the machine.
fn best(mut work: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        work()?;
        best = best.min(begun.elapsed());
    }
    Ok(best)
}

fn no_op_sync(path: &Path) -> Outcome<()> {
    let host = open(path)?;
    let took = best(|| {
        let current = disk::current_config(&host.root)?.ok_or("no config is on record")?;
        let found = verify::differences(&host, &Machine::read(&current)?)?;
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}").into()) }
    })?;
    let paths: Vec<PathBuf> =
        (0..FILES).map(|number| path.join(format!("etc/many/{}/{number}", number % 20))).collect();
    let limit = best(|| {
        for path in &paths {
            let bytes = fs::symlink_metadata(path)?.len();
            if bytes == 0 || fs::read(path)?.is_empty() {
                return Err("an empty file".into());
            }
        }
        Ok(())
    })?;
    let limit = format!("stat and read of the same files {}; wanted 20 ms", milliseconds(limit));
    Ok(say("no-op sync of 1,000 files", &milliseconds(took), &limit)?)
}

async fn create_objects(client: &Client, config: &MachineConfig) -> Outcome<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in mco_api::crds() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": "worker-0",
        "labels": {"node-role.kubernetes.io/worker": ""}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let configs: Api<MachineConfig> = Api::all(client.clone());
    configs.create(&PostParams::default(), config).await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "configuration": {"name": "rendered-worker-1"}}
    });
    pools.create(&PostParams::default(), &serde_json::from_value(pool)?).await?;
    Ok(())
}

fn around(client: &Client, glass: &SharedState) -> DaemonContext {
    let reporter = Reporter::new(client.clone(), "machineconfigdaemon", NoteCount::default());
    DaemonContext { state: glass.clone(), ..DaemonContext::new(client.clone(), reporter) }
}

async fn state(nodes: &Api<Node>, want: &str) -> Outcome<()> {
    let key = "machineconfiguration.openshift.io/state";
    let is = |node: Option<&Node>| {
        node.and_then(|node| node.annotations().get(key)).map(String::as_str) == Some(want)
    };
    tokio::time::timeout(Duration::from_mins(1), await_condition(nodes.clone(), "worker-0", is))
        .await??;
    Ok(())
}

async fn first_sync(client: &Client, root: &Path) -> Outcome<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut best = Duration::MAX;
    for round in 0..5 {
        let (glass, shutdown, host) = (SharedState::default(), Shutdown::new(), open(root)?);
        let begun = Instant::now();
        let running =
            mco_daemon::run("worker-0".parse()?, host, around(client, &glass), shutdown.clone());
        let running = tokio::spawn(running);
        while glass.get().boot_id.is_empty() {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let took = begun.elapsed();
        state(&nodes, "Done").await?;
        shutdown.request();
        running.await?;
        // The first start also sets the initial annotations, which happens once in a node's life.
        best = if round == 0 { best } else { best.min(took) };
    }
    Ok(say("start to first sync", &milliseconds(best), "wanted 100 ms")?)
}

async fn drift(client: &Client, nodes: &Api<Node>, root: &Path) -> Outcome<()> {
    let (glass, shutdown) = (SharedState::default(), Shutdown::new());
    let run =
        mco_daemon::run("worker-0".parse()?, open(root)?, around(client, &glass), shutdown.clone());
    let running = tokio::spawn(run);
    state(nodes, "Done").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let path = root.join("etc/many/7/7");
    let before = fs::read(&path)?;
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        fs::write(&path, "edited")?;
        state(nodes, "Degraded").await?;
        best = best.min(begun.elapsed());
        fs::write(&path, &before)?;
        // No drain controller answers the uncordon here, so the node stays Degraded until this
        // patch.
        let key = "machineconfiguration.openshift.io/lastAppliedDrain";
        let answer = json!({"metadata": {"annotations": {key: "uncordon-rendered-worker-1"}}});
        let answer = kube::api::Patch::Merge(answer);
        nodes.patch("worker-0", &kube::api::PatchParams::default(), &answer).await?;
        state(nodes, "Done").await?;
    }
    shutdown.request();
    running.await?;
    Ok(say(
        "drift to the node's annotation",
        &milliseconds(best),
        "30 ms of it wait for the editor to finish; wanted 1 s",
    )?)
}

/// The measured process: the shipped binary, or this one if that is not built.
struct Subject {
    what: &'static str,
    program: PathBuf,
    /// Arguments of the shipped binary, or the role of this program.
    role: Result<Vec<String>, String>,
}

impl Subject {
    fn find(root: &Path, kubeconfig: &Path) -> io::Result<Self> {
        let this = env::current_exe()?;
        let (root, kubeconfig) = (root.display().to_string(), kubeconfig.display().to_string());
        // Benchmarks are in a directory below the one of the binaries of their profile.
        let mco = this.ancestors().nth(3).map(|folder| folder.join("dist/mco"));
        let Some(program) = mco.filter(|mco| mco.exists()) else {
            let (what, role) =
                ("this program (there is no dist/mco)", format!("{root}\n{kubeconfig}"));
            return Ok(Self { what, program: this, role: Err(role) });
        };
        let words = ["daemon", "start", "--node-name", "worker-0", "--root-mount", &root];
        let more = ["--kubeconfig", &kubeconfig, "--metrics-listen-address", "127.0.0.1:0"];
        let words = words.iter().chain(&more).map(|&word| word.to_owned()).collect();
        Ok(Self { what: "mco daemon start", program, role: Ok(words) })
    }

    /// Starts the process; returns once it has verified its disk.
    fn start(&self) -> Outcome<(Kept, Duration)> {
        let mut command = Command::new(&self.program);
        // The container image sets this for every process.
        command.env("MALLOC_TRIM_THRESHOLD_", "131072");
        match &self.role {
            Ok(words) => command.args(words),
            Err(role) => command.env(ROLE, role),
        };
        let begun = Instant::now();
        let mut child = Kept(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?);
        let mut lines = BufReader::new(child.0.stderr.take().ok_or("no log")?).lines();
        for line in &mut lines {
            if line?.contains("Config Drift Monitor started") {
                let took = begun.elapsed();
                // Read to the end, so that the process can continue to log.
                std::thread::spawn(move || lines.count());
                return Ok((child, took));
            }
        }
        Err("the daemon ended".into())
    }
}

/// Measures one daemon: the time to its first sync, and its memory when idle.
async fn process(api: ApiServer, folder: &Path, root: &Path, files: usize) -> Outcome<()> {
    fs::create_dir(folder)?;
    let listener = Listener::bind(api, folder, ([127, 0, 0, 1], 0).into()).await?;
    let subject = Subject::find(root, listener.kubeconfig())?;
    let serving = tokio::spawn(listener.serve(std::future::pending()));
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let start = || subject.start().map(|(_, took)| took).map_err(|error| error.to_string());
        best = best.min(tokio::task::block_in_place(start)?);
    }
    let limit = format!("{}; wanted 100 ms", subject.what);
    let what = format!("start to first sync, a process, {files} files");
    say(&what, &milliseconds(best), &limit)?;
    let start = || subject.start().map_err(|error| error.to_string());
    let (child, _) = tokio::task::block_in_place(start)?;
    // Idle threads end after ten seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let status = fs::read_to_string(format!("/proc/{}/status", child.0.id()))?;
    let line = |key: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(key));
        found.map(|rest| rest.trim().to_owned()).unwrap_or_default()
    };
    let limit = format!(
        "{}; of it files {}, {} threads; wanted 12 MiB",
        subject.what,
        line("RssFile:"),
        line("Threads:")
    );
    serving.abort();
    Ok(say(&format!("memory when idle (RSS), {files} files"), &line("VmRSS:"), &limit)?)
}

/// A process that is killed on drop.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn daemon(role: &str) -> Outcome<()> {
    telemetry::start(telemetry::Format::Text, tracing::Level::INFO)?;
    let (root, kubeconfig) = role.split_once('\n').ok_or("a root and a kubeconfig")?;
    let client = client::connect(Some(Path::new(kubeconfig))).await?;
    let (node, host) = ("worker-0".parse()?, open(Path::new(root))?);
    mco_daemon::run(node, host, around(&client, &SharedState::default()), Shutdown::new()).await;
    Ok(())
}
