//! `mco up`: the whole system on one machine.

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use mco_cluster::telemetry::{self, Format};

use crate::{
    print::Screen,
    remote::DIR,
    up::{self, Settings, live::Show, place::Place},
};

/// Run a whole cluster on this machine: API, operator, controller, server, and a daemon per node
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Simulated workers, each with a real directory for a disk
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=500))]
    nodes: u16,
    /// Simulated masters
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=50))]
    masters: u16,
    /// Where everything is kept; a second start goes on from there
    #[arg(long, default_value = DIR, value_name = "DIR")]
    dir: PathBuf,
    /// Loopback address of the Kubernetes API; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Address that hands out configs to new machines; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    server_listen: SocketAddr,
}

const EXAMPLES: &str = "\
Examples:
  mco up                                  three masters, three workers, in .mco
  mco up --nodes 50 --dir /tmp/big        more of them, elsewhere
  mco down --purge                        stop, and forget everything

Ctrl-C stops it. Started again, it goes on where it was, also after a crash.";

/// Runs until it is stopped.
pub(crate) fn run(
    args: &UpArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let place = Place::take(&args.dir)?;
    let level = if verbose { tracing::Level::INFO } else { tracing::Level::ERROR };
    telemetry::start(Format::Text, level)?;
    let settings = Settings {
        masters: args.masters,
        workers: args.nodes,
        listen: args.listen,
        server_listen: args.server_listen,
        shown_dir: args.dir.clone(),
        show: if io::stdout().is_terminal() { Show::InPlace } else { Show::Lines },
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(up::run(&place, &settings, screen))?;
    Ok(ExitCode::SUCCESS)
}
