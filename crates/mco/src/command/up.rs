//! `mco up`: runs a whole cluster on one machine.

use std::{
    io::{self, IsTerminal as _, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
};

use mco_cluster::{
    client::ClusterChoice,
    telemetry::{self, Format},
};

use crate::{
    error::error_with_hint,
    print::Screen,
    remote::DEFAULT_DIR,
    up::{
        self, Settings,
        display::DisplayMode,
        fleet::{self, Role},
        logs::ComponentLogs,
        scenario::{Scenario, ScenarioChoice},
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
    /// Number of failure zones that the nodes are labelled with; no zones if omitted
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=50))]
    zones: Option<u16>,
    /// Play a scenario on the cluster, print every step, and stop; `list` prints the scenarios
    #[arg(long, value_name = "NAME")]
    scenario: Option<ScenarioChoice>,
    /// Run each component as a process of its own, with its log in the state directory
    #[arg(long, conflicts_with = "scenario")]
    processes: bool,
    /// Run the components as processes on the cluster of this kubeconfig. Machines are simulated only if
    /// --nodes or --masters asks for them. A cluster with real nodes or another operator is refused
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "zones", "listen"])]
    kubeconfig: Option<PathBuf>,
    /// Context of that kubeconfig; its current one if omitted
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  mco up                                  three masters and three workers, state in .mco
  mco up --nodes 50 --dir /tmp/big        more workers, state in another directory
  mco up --nodes +1                       one more worker, which joins through the config server
  mco up --zones 3                        nodes in three failure zones, which are updated in order
  mco up --scenario list                  the scenarios, such as a budget that blocks a drain
  mco up --scenario budget --dir /tmp/budget
  mco up -v                               with the log of all processes
  mco up --processes                      operator, controller, server and daemons as processes
  mco up --kubeconfig FILE --nodes 2      the same on another cluster, with two simulated workers
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
fn workers(wanted: Option<NodeCount>, present: u16, default: fn(u16) -> u16) -> u16 {
    match wanted {
        None => default(present),
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
    let story = match args.scenario {
        Some(ScenarioChoice::List) => {
            for story in Scenario::ALL {
                writeln!(screen, "{story:16}  {}", story.summary())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Some(ScenarioChoice::Play(story)) => Some(story),
        None => None,
    };
    let state = StateDir::lock(&args.dir)?;
    check_use(&state, args)?;
    let level = if verbose { tracing::Level::INFO } else { tracing::Level::ERROR };
    let logs = ComponentLogs::new(state.dir());
    telemetry::start_captured(Format::Text, level, logs.receiver())?;
    let nodes = state.nodes()?;
    let present = |role: Role| {
        let numbers = nodes.iter().filter_map(|name| fleet::number(role, name));
        numbers.max().map_or(0, |last| last.saturating_add(1))
    };
    // A cluster that is there gets no machine that the user has not asked for.
    let least = if args.kubeconfig.is_some() { |present| present } else { default_count };
    let settings = Settings {
        masters: args.masters.unwrap_or_else(|| least(present(Role::Master))),
        workers: workers(args.nodes, present(Role::Worker), least).into(),
        listen: args.listen,
        server_listen: args.server_listen,
        shown_dir: args.dir.clone(),
        display: display_mode(io::stdout().is_terminal(), verbose),
        logs,
        zones: args.zones,
        story,
        processes: args.processes,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = match &args.kubeconfig {
        Some(file) => {
            let (files, context) = (vec![file.clone()], args.context.clone());
            let choice = ClusterChoice { files, context, cluster: None };
            runtime.block_on(up::existing::run(&state, &settings, &choice, screen))
        }
        None => runtime.block_on(up::run(&state, &settings, screen)),
    };
    // A call of a simulated machine that does not return ends with the process.
    runtime.shutdown_timeout(up::SHUTDOWN_TIMEOUT);
    ended.map(|()| ExitCode::SUCCESS)
}

/// Fails if the state directory belongs to another cluster than the flags choose.
fn check_use(state: &StateDir, args: &UpArgs) -> anyhow::Result<()> {
    let dir = args.dir.display();
    let hint =
        format!("choose another directory with --dir, or run `mco down --purge --dir {dir}`");
    if args.kubeconfig.is_some() && state.has_database() {
        return Err(error_with_hint(format!("{dir} has a cluster of its own"), hint));
    }
    if args.kubeconfig.is_none() && state.is_elsewhere() {
        let message = format!("{dir} was used with the cluster of a kubeconfig");
        return Err(error_with_hint(message, format!("add --kubeconfig FILE, or {hint}")));
    }
    Ok(())
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
            let found = text.parse().ok().map(|count| workers(Some(count), present, default_count));
            assert_eq!(found, want, "{text}");
        }
        let default = |present| workers(None, present, default_count);
        assert_eq!((default(0), default(4)), (3, 4));
        assert_eq!(workers(None, 0, |present| present), 0);
    }

    #[test]
    fn a_redraw_never_overwrites_the_log() {
        assert_eq!(display_mode(true, false), DisplayMode::Redraw);
        assert_eq!(display_mode(true, true), DisplayMode::Lines);
        assert_eq!(display_mode(false, false), DisplayMode::Lines);
    }
}
