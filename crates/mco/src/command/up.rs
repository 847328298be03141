//! `mco up`: runs a whole cluster on one machine.

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
};

use mco_cluster::telemetry::{self, Format};

use crate::{
    print::Screen,
    remote::DEFAULT_DIR,
    up::{self, Settings, display::DisplayMode, state_dir::StateDir},
};

/// Run a whole cluster on this machine: API, operator, controller, server, and a daemon per node
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Number of simulated workers, each with a directory as its disk
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(0..=500))]
    nodes: u16,
    /// Number of simulated masters
    #[arg(long, default_value_t = 3, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=50))]
    masters: u16,
    /// Directory for all state; a later start continues with the state in it
    #[arg(long, default_value = DEFAULT_DIR, value_name = "DIR")]
    dir: PathBuf,
    /// Loopback address of the Kubernetes API; port 0 selects a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Address of the config server for new machines; port 0 selects a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    server_listen: SocketAddr,
}

const EXAMPLES: &str = "\
Examples:
  mco up                                  three masters and three workers, state in .mco
  mco up --nodes 50 --dir /tmp/big        more workers, state in another directory
  mco up -v                               with the log of all processes
  mco down --purge                        stop the cluster and delete its state

Ctrl-C stops the cluster. The next start continues with the same state, also after a crash.";

/// Runs the cluster until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &UpArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let state = StateDir::lock(&args.dir)?;
    let level = if verbose { tracing::Level::INFO } else { tracing::Level::ERROR };
    telemetry::start(Format::Text, level)?;
    let settings = Settings {
        masters: args.masters,
        workers: args.nodes,
        listen: args.listen,
        server_listen: args.server_listen,
        shown_dir: args.dir.clone(),
        display: display_mode(io::stdout().is_terminal(), verbose),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(up::run(&state, &settings, screen))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the display mode. A redraw would overwrite the log on standard error, so a verbose run
/// prints lines.
fn display_mode(terminal: bool, verbose: bool) -> DisplayMode {
    if terminal && !verbose { DisplayMode::Redraw } else { DisplayMode::Lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redraw_never_overwrites_the_log() {
        assert_eq!(display_mode(true, false), DisplayMode::Redraw);
        assert_eq!(display_mode(true, true), DisplayMode::Lines);
        assert_eq!(display_mode(false, false), DisplayMode::Lines);
    }
}
