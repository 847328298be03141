//! Measures the embedded API server beside a real kube-apiserver with its etcd: `make bench`.

#![expect(clippy::disallowed_methods, reason = "reads /proc and the arguments of the program")]

mod load;

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use mco_testkit::{
    api::{ApiServer as _, Embedded, KubeApiServer, Programs, Settings},
    pki::Authority,
};

use self::load::{Measured, Size};

const USAGE: &str = "usage: api MCO [NODES [PODS [WATCHERS [EVENTS]]]]";

/// The factor by which the embedded server must be better, in the size that the goal names.
const GOAL: f64 = 5.0;

/// The size that the goal names.
const FULL: Size = Size { nodes: 5_000, pods: 20_000, watchers: 200, events: 1_000 };

/// Admission plugin that needs a controller, which does not run here.
const WITHOUT: &str = "--disable-admission-plugins=ServiceAccount";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let mco = PathBuf::from(words.first().context(USAGE)?);
    let number = |at: usize, default: usize| match words.get(at) {
        Some(text) => text.parse().context(USAGE),
        None => anyhow::Ok(default),
    };
    let size = Size {
        nodes: number(1, FULL.nodes)?,
        pods: number(2, FULL.pods)?,
        watchers: number(3, FULL.watchers)?,
        events: number(4, FULL.events)?,
    };
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => bail!("{absent}"),
    };
    let folder = tempfile::tempdir().context("failed to create a directory")?;
    let real = measure_real(&programs, &folder.path().join("real"), &size).await?;
    let embedded = measure_embedded(&mco, &folder.path().join("embedded"), &size).await?;
    let rows = rows(&real, &embedded);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{size}")?;
    writeln!(out, "| | kube-apiserver and etcd | `mco apiserver` | factor |")?;
    writeln!(out, "| --- | --- | --- | --- |")?;
    for row in &rows {
        let Row { name, real, embedded, factor, unit } = row;
        writeln!(out, "| {name} | {real:.0} {unit} | {embedded:.0} {unit} | {factor:.1} |")?;
    }
    let missed: Vec<&str> =
        rows.iter().filter(|row| row.factor < GOAL).map(|row| row.name).collect();
    if size == FULL && !missed.is_empty() {
        bail!("less than {GOAL} times as good: {}", missed.join(", "));
    }
    Ok(())
}

/// One measure of both servers.
struct Row {
    name: &'static str,
    unit: &'static str,
    real: f64,
    embedded: f64,
    /// The embedded server is this many times better.
    factor: f64,
}

fn rows(real: &Measured, embedded: &Measured) -> Vec<Row> {
    let more = |name, unit, of: fn(&Measured) -> f64| {
        let (real, embedded) = (of(real), of(embedded));
        Row { name, unit, real, embedded, factor: embedded / real }
    };
    let less = |name, unit, of: fn(&Measured) -> f64| {
        let (real, embedded) = (of(real), of(embedded));
        Row { name, unit, real, embedded, factor: real / embedded }
    };
    vec![
        more("nodes created", "per s", |it| it.creates),
        more("nodes updated", "per s", |it| it.updates),
        less("list of all nodes", "ms", |it| it.list),
        more("events sent to watchers", "per s", |it| it.events),
        less("memory (RSS)", "MiB", |it| it.memory),
    ]
}

async fn measure_real(programs: &Programs, dir: &Path, size: &Size) -> anyhow::Result<Measured> {
    let mut settings = Settings::loopback(dir);
    settings.flags.push(WITHOUT.to_owned());
    let mut server = KubeApiServer::start(programs, &Authority::new("bench")?, &settings)?;
    let client = client(server.kubeconfig()).await?;
    let mut measured = load::run(&client, size).await?;
    let ids = server.processes().map(|process| process.id());
    measured.memory = ids.into_iter().map(resident).sum::<anyhow::Result<f64>>()?;
    Ok(measured)
}

async fn measure_embedded(mco: &Path, dir: &Path, size: &Size) -> anyhow::Result<Measured> {
    fs::create_dir_all(dir).context("failed to create a directory")?;
    let mut server = Embedded::start(mco, dir)?;
    let client = client(server.kubeconfig()).await?;
    let mut measured = load::run(&client, size).await?;
    measured.memory = resident(server.process().id())?;
    Ok(measured)
}

async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Returns the memory of a process in MiB.
fn resident(process: u32) -> anyhow::Result<f64> {
    let text =
        fs::read_to_string(format!("/proc/{process}/status")).context("the process has ended")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<f64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib / 1024.0).context("/proc has no memory of the process")
}
