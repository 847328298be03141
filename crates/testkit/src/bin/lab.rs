//! The command behind `make lab`, `make lab-down` and `make lab-enter`.

#![expect(
    clippy::disallowed_methods,
    reason = "a development tool starts itself in the background"
)]

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};
use mco_testkit::lab::{Background, Lab, LabPrerequisites, Plan};
use tokio::signal::unix::{SignalKind, signal};

/// Prefix of the line that the background process prints when the lab is complete.
const READY: &str = "ready ";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let ingredients = match LabPrerequisites::find() {
        Ok(found) => found,
        Err(missing) => bail!("{missing}"),
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["up", rest @ ..] => up(&ingredients, rest.first().copied()),
        ["serve", machines, rest @ ..] => {
            let machines = machines.parse().context("invalid number of machines")?;
            serve(&ingredients, &Plan { machines, mco: rest.first().map(PathBuf::from) })
        }
        ["down"] => match Background::find(&ingredients) {
            Some(lab) => lab.end().and_then(|()| print("the lab is removed")),
            None => ingredients.sweep().and_then(|()| print("no lab is running")),
        },
        ["enter", machine, ..] => match Background::find(&ingredients) {
            Some(lab) => lab.enter(machine, words.get(2..).unwrap_or_default()),
            None => bail!("no lab is running (`make lab` starts one)"),
        },
        _ => {
            bail!("usage: lab up [BINARY] | down | enter MACHINE [COMMAND] | serve COUNT [BINARY]")
        }
    }
}

fn print(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("failed to write to standard output")
}

/// Starts this program again in the background and waits until its lab is complete.
fn up(ingredients: &LabPrerequisites, binary: Option<&str>) -> anyhow::Result<()> {
    if Background::find(ingredients).is_some() {
        bail!("a lab is already running (`make lab-down` removes it)");
    }
    let own = env::current_exe().context("failed to find this program")?;
    let mut command = Command::new(own);
    command.args(["serve", "3"]).args(binary).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("failed to start the lab")?;
    let output = child.stdout.take().context("the lab has no standard output")?;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some(id) = line.strip_prefix(READY) {
            return Background::note(ingredients, child.id(), id);
        }
        print(&line)?;
    }
    bail!("the lab failed to start (see above)")
}

/// Runs a lab until a signal ends this process.
#[tokio::main(flavor = "current_thread")]
async fn serve(ingredients: &LabPrerequisites, plan: &Plan) -> anyhow::Result<()> {
    let mut ends = signal(SignalKind::terminate()).context("failed to listen for signals")?;
    print("lab: starting a control plane and the machines")?;
    let lab = Lab::up(ingredients, plan).await?;
    if plan.mco.is_some() {
        lab.ask(&["label", "nodes", "--all", "node-role.kubernetes.io/worker="])?;
    }
    for line in about(&lab) {
        print(&line)?;
    }
    print(&format!("{READY}{}", lab.id()))?;
    tokio::select! {
        _ = ends.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    lab.down()
}

fn about(lab: &Lab) -> Vec<String> {
    let names: Vec<&str> = lab.machines().iter().map(mco_testkit::lab::Machine::name).collect();
    let kubeconfig = lab.kubeconfig().display();
    vec![
        format!("machines    {}, all Ready", names.join(" ")),
        format!("memory      {} MiB", lab.memory().processes >> 20),
        format!("kubeconfig  {kubeconfig}"),
        format!("folder      {}", lab.folder().display()),
        "enter       make lab-enter MACHINE=m1".to_owned(),
        format!("install     mco install | kubectl --kubeconfig {kubeconfig} apply -f -"),
        "end         make lab-down".to_owned(),
    ]
}
