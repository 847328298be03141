//! A lab for people: `make lab`, `make lab-down`, `make lab-enter`.

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
use mco_testkit::lab::{Background, Ingredients, Lab, Plan};
use tokio::signal::unix::{SignalKind, signal};

/// What the background process says when everything is there.
const READY: &str = "ready ";

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let ingredients = match Ingredients::find() {
        Ok(found) => found,
        Err(missing) => bail!("{missing}"),
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["up", rest @ ..] => up(&ingredients, rest.first().copied()),
        ["serve", machines, rest @ ..] => {
            let machines = machines.parse().context("how many machines?")?;
            serve(&ingredients, &Plan { machines, mco: rest.first().map(PathBuf::from) })
        }
        ["down"] => match Background::find(&ingredients) {
            Some(lab) => lab.end().and_then(|()| say("the lab is gone")),
            None => ingredients.sweep().and_then(|()| say("there is no lab")),
        },
        ["enter", machine, ..] => match Background::find(&ingredients) {
            Some(lab) => lab.enter(machine, words.get(2..).unwrap_or_default()),
            None => bail!("there is no lab (make lab starts one)"),
        },
        _ => {
            bail!("usage: lab up [BINARY] | down | enter MACHINE [COMMAND] | serve COUNT [BINARY]")
        }
    }
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("nobody listens")
}

/// Starts this program again in the background and waits until its lab is complete.
fn up(ingredients: &Ingredients, binary: Option<&str>) -> anyhow::Result<()> {
    if Background::find(ingredients).is_some() {
        bail!("there is a lab already (make lab-down ends it)");
    }
    let own = env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(own);
    command.args(["serve", "3"]).args(binary).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("cannot start the lab")?;
    let output = child.stdout.take().context("the lab says nothing")?;
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some(id) = line.strip_prefix(READY) {
            return Background::note(ingredients, child.id(), id);
        }
        say(&line)?;
    }
    bail!("the lab did not come up (see above)")
}

/// Has a lab until a signal ends this process.
#[tokio::main(flavor = "current_thread")]
async fn serve(ingredients: &Ingredients, plan: &Plan) -> anyhow::Result<()> {
    let mut ends = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    say("lab: starting a control plane and the machines")?;
    let lab = Lab::up(ingredients, plan).await?;
    if plan.mco.is_some() {
        lab.ask(&["label", "nodes", "--all", "node-role.kubernetes.io/worker="])?;
    }
    for line in about(&lab) {
        say(&line)?;
    }
    say(&format!("{READY}{}", lab.id()))?;
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
        format!("deploy      kubectl --kubeconfig {kubeconfig} apply -f deploy/"),
        "end         make lab-down".to_owned(),
    ]
}
