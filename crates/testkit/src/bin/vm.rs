//! A machine with a kernel of its own, by hand: executes the commands of the standard input in it.
//!
//! `cargo run -p mco-testkit --bin vm -- one` or `boot`; `make vm-tools` prepares it.

use std::{
    env,
    io::{self, BufRead as _, Write as _},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use mco_testkit::vm::{Layout, SavedMachine, VmFolder, VmPrerequisites};

fn main() -> anyhow::Result<()> {
    let layout = match env::args().nth(1).as_deref() {
        Some("one") => Layout::One,
        Some("boot") => Layout::SeparateBoot,
        _ => bail!("usage: vm one|boot: /boot in the root, or as a file system of its own"),
    };
    let prerequisites = match VmPrerequisites::find() {
        Ok(found) => found,
        Err(missing) => bail!("{missing}"),
    };
    let folder = Arc::new(VmFolder::make(&prerequisites.machines())?);
    let mut vm = SavedMachine::find(&prerequisites, layout)?.restore(&folder)?;
    let mut out = io::stdout();
    writeln!(out, "ready {}", folder.path().display()).context("failed to print")?;
    for line in io::stdin().lock().lines() {
        let output = vm.run(&line.context("failed to read a command")?)?;
        write!(out, "{}", output.text).context("failed to print")?;
        writeln!(out, "exit code {}", output.code).context("failed to print")?;
    }
    Ok(())
}
