//! Measures applying 200 small files beside a plain loop that writes, syncs and renames them; and
//! verifying 1,000 files that do not differ.
//!
//! Uses a real disk: the directory is created in the target directory, because there is nothing to
//! sync in memory.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark looks at the clock and the disk, and prints what it found"
)]

use std::{
    fs,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use mco_api::MachineConfig;
use mco_apply::{ParsedConfig, execute, first_boot, verify};
use mco_core::{
    machine::Machine,
    plan::{self, ApplyMode, Circumstances, default_policies},
};
use mco_host::{Host, Root, SimulatedSystem};
use serde_json::{Value, json};

const FILES: usize = 200;
const ROUNDS: usize = 15;

fn config(name: &str, count: usize, text: &str) -> MachineConfig {
    let file = |number: usize| {
        let source = format!("data:,{text}-{number}-{}", "x".repeat(500));
        let path = format!("/etc/bench/{}/{number}.conf", number % 5);
        json!({"path": path, "contents": {"source": source}})
    };
    let files: Vec<Value> = (0..count).map(file).collect();
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}}
    });
    serde_json::from_value(object).expect("it is a MachineConfig")
}

fn machine(folder: &Path, config: &MachineConfig) -> Host<SimulatedSystem> {
    let root = Root::open(folder).expect("the folder is there");
    SimulatedSystem::write_base_files(&root).expect("the folder takes files");
    let system = SimulatedSystem::open(&root).expect("the folder takes files");
    let mut host = Host { root, system };
    first_boot::provision(&mut host, config).expect("the machine is installed");
    host.system.boot().expect("it boots");
    host
}

/// Writes every file under a temporary name, syncs it, and renames it.
fn plain(folder: &Path, text: &str) -> Duration {
    let began = Instant::now();
    for number in 0..FILES {
        let path = folder.join(format!("etc/bench/{}/{number}.conf", number % 5));
        let beside = path.with_extension("new");
        let mut file = fs::File::create(&beside).expect("a file");
        let bytes = format!("{text}-{number}-{}", "x".repeat(500));
        file.write_all(bytes.as_bytes()).expect("its bytes");
        file.sync_all().expect("a disk");
        fs::rename(&beside, &path).expect("its name");
    }
    began.elapsed()
}

fn ours(host: &mut Host<SimulatedSystem>, from: &MachineConfig, to: &MachineConfig) -> Duration {
    let read = |config: &MachineConfig| ParsedConfig::read(config.clone()).expect("it can be read");
    let (from, to) = (read(from), read(to));
    let at = Circumstances { mode: ApplyMode::FirstBoot, ..Circumstances::default() };
    let plan = plan::node(&from.machine, &to.machine, &default_policies(), &at).expect("a plan");
    let began = Instant::now();
    execute::begin(host, &from, &to, plan, &mut |_| {}).expect("it is applied");
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = tempfile::tempdir_in(target).expect("a folder on a disk");
    let configs = [config("rendered-a", FILES, "a"), config("rendered-b", FILES, "b")];
    let [first, second] = &configs;
    let mut host = machine(folder.path(), first);
    let (mut plains, mut applies) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (from, to) = if round % 2 == 0 { (first, second) } else { (second, first) };
        plains.push(plain(folder.path(), &format!("plain{round}")));
        applies.push(ours(&mut host, from, to));
    }
    let (plain, ours) = (median(plains), median(applies));
    let ratio = ours.as_secs_f64() / plain.as_secs_f64();
    println!("{FILES} changed files: plain loop {plain:.1?}, apply {ours:.1?}, {ratio:.2} times");

    let many = config("rendered-many", 1_000, "m");
    let folder = tempfile::tempdir_in(target).expect("a folder on a disk");
    let host = machine(folder.path(), &many);
    let read = Machine::read(&many).expect("it can be read");
    let looks: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(verify::files(&host, &read), None);
            began.elapsed()
        })
        .collect();
    println!("1000 managed files without a difference: {:.1?}", median(looks));
}
