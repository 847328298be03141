//! `mco up`: runs a whole cluster on one machine.

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
};

use mco_cluster::telemetry::{self, Format};

use crate::{
    print::Screen,
    remote::DEFAULT_DIR,
    up::{
        self, Settings,
        display::DisplayMode,
        fleet::{self, Role},
        state_dir::StateDir,
    },
};

/// Run a whole cluster on this machine: API, operator, controller, server, and a daemon per node
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Number of simulated workers, each with a directory as its disk; +N adds N to those that the
    /// state directory has. Workers above the number are removed. Those of the state directory, or 3,
    /// if omitted
    #[arg(long, value_name = "COUNT")]
    nodes: Option<NodeCount>,
    /// Number of simulated masters; those of the state directory, or 3, if omitted
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=50))]
    masters: Option<u16>,
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
  mco up --nodes +1                       one more worker, which joins through the config server
  mco up -v                               with the log of all processes
  mco down --purge                        stop the cluster and delete its state

Ctrl-C stops the cluster. The next start continues with the same state, also after a crash.";

/// Number of machines of a role that a new state directory gets.
const DEFAULT_COUNT: u16 = 3;
/// Maximum number of workers.
const MAX_WORKERS: u16 = 500;

/// A number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeCount {
    Exactly(u16),
    /// So many more than the state directory has.
    More(u16),
}

impl FromStr for NodeCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (digits, kind): (&str, fn(u16) -> Self) = match text.strip_prefix('+') {
            Some(digits) => (digits, Self::More),
            None => (text, Self::Exactly),
        };
        let count = digits.parse().ok().filter(|count| *count <= MAX_WORKERS);
        let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.filter(|_| is_plain);
        count.map(kind).ok_or_else(|| format!("a number up to {MAX_WORKERS}, or +N, is expected"))
    }
}

/// Returns the number of workers to run, if the state directory has `present` of them.
fn workers(wanted: Option<NodeCount>, present: u16) -> u16 {
    match wanted {
        None => default_count(present),
        Some(NodeCount::Exactly(count)) => count,
        Some(NodeCount::More(more)) => present.saturating_add(more).min(MAX_WORKERS),
    }
}

fn default_count(present: u16) -> u16 {
    if present == 0 { DEFAULT_COUNT } else { present }
}

/// Runs the cluster until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &UpArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let state = StateDir::lock(&args.dir)?;
    let level = if verbose { tracing::Level::INFO } else { tracing::Level::ERROR };
    telemetry::start(Format::Text, level)?;
    let nodes = state.nodes()?;
    let present = |role: Role| {
        let numbers = nodes.iter().filter_map(|name| fleet::number(role, name));
        numbers.max().map_or(0, |last| last.saturating_add(1))
    };
    let settings = Settings {
        masters: args.masters.unwrap_or_else(|| default_count(present(Role::Master))),
        workers: workers(args.nodes, present(Role::Worker)),
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
    fn a_number_of_workers_is_absolute_or_relative() {
        for (text, present, want) in [
            ("5", 3, Some(5)),
            ("+1", 3, Some(4)),
            ("+1", 0, Some(1)),
            ("0", 3, Some(0)),
            ("+0", 3, Some(3)),
            ("501", 3, None),
            ("-1", 3, None),
            ("++1", 3, None),
            ("", 3, None),
        ] {
            let found = text.parse().ok().map(|count| workers(Some(count), present));
            assert_eq!(found, want, "{text}");
        }
        assert_eq!((workers(None, 0), workers(None, 4)), (3, 4));
    }

    #[test]
    fn a_redraw_never_overwrites_the_log() {
        assert_eq!(display_mode(true, false), DisplayMode::Redraw);
        assert_eq!(display_mode(true, true), DisplayMode::Lines);
        assert_eq!(display_mode(false, false), DisplayMode::Lines);
    }
}
