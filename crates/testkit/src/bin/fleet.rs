//! Measures a rollout to a whole fleet: `make bench-fleet`.

use std::{env, io::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use mco_testkit::{
    api::Programs,
    fleet::{self, DaemonMode, Plan},
};

const USAGE: &str = "usage: fleet MCO [NODES [instant|drain [SECONDS-IDLE]]]";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let mut words = words.iter().map(String::as_str);
    let mco = PathBuf::from(words.next().context(USAGE)?);
    let nodes = words.next().unwrap_or("1000").parse().context(USAGE)?;
    let mode = match words.next() {
        None | Some("instant") => DaemonMode::Instant,
        Some("drain") => DaemonMode::Drain,
        Some(_) => bail!(USAGE),
    };
    let idle = Duration::from_secs(words.next().unwrap_or("20").parse().context(USAGE)?);
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => bail!("{absent}"),
    };
    let folder = tempfile::tempdir().context("failed to create a directory")?;
    let outcome = fleet::run(&programs, folder.path(), &Plan { mco, nodes, mode, idle }).await?;
    let mut out = std::io::stdout().lock();
    write!(out, "{outcome}").context("failed to write to standard output")?;
    outcome.check()
}
