//! Command line of `mco`: the subcommands, the global flags and the process names that stand for a
//! subcommand.

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::{
    command::{
        apiserver, apiserver_watcher, apply, cat, check, completion, controller, convert, crds,
        daemon, delete, diff, doctor, down, drift, events, exit_codes, get, host, install, join,
        kubelets, logs, manual, must_gather, node, operator, plan, pointer, render, rollout,
        server, simulate, status, takeover, token, uninstall, up, version, why,
    },
    print,
};

/// Machine configuration for Kubernetes nodes: render it, check it, compare it, explain it
#[derive(Debug, clap::Parser)]
#[command(name = "mco", version, after_help = EXAMPLES, propagate_version = true)]
pub(crate) struct Args {
    /// Show more: ignored objects, assumptions, and the log of `mco up` and the other processes
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// Print no notes, only results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Process with which this one ends
    #[arg(long, global = true, hide = true, value_name = "PID")]
    pub(crate) parent: Option<u32>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mco up                                         a whole cluster on this machine
  mco status                                     pools and nodes, what each waits for, and the remedy
  mco plan -f change.yaml                        the effect of a change on each node, before it
  mco apply -f change.yaml --follow              the change, until all nodes are done
  mco why worker-0                               why a node updates, and who changed what
  mco rollout undo worker                        back to the config before
  mco doctor                                     the health of a cluster, and fixes
  mco check -f manifests/                        all faults of the manifests
  mco render -f manifests/ --pool worker         the name of a pool's rendered config
  mco diff old.yaml new.yaml                     the differences, decoded
  mco plan -f manifests/ -f change.yaml          the effect of a change, without a cluster
  mco cat rendered.yaml /etc/chrony.conf         one file of a config
  mco why -f manifests/ --pool worker /etc/motd  the MachineConfig that sets a file";

/// Process names of the reference's images, and the subcommand of each.
const PROCESSES: &[(&str, &str)] = &[
    ("apiserver-watcher", "apiserver-watcher"),
    ("machine-config-controller", "controller"),
    ("machine-config-daemon", "daemon"),
    ("machine-config-operator", "operator"),
    ("machine-config-server", "server"),
];

impl Args {
    /// Parses the command line. A binary that is called by the name of a process runs as that
    /// process.
    pub(crate) fn read(args: impl IntoIterator<Item = OsString>) -> Self {
        let matches = definition(print::program()).get_matches_from(with_subcommand(args));
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// Returns the definition of the command line, whose usage and examples name the program as it was
/// called.
pub(crate) fn definition(program: &str) -> clap::Command {
    let command = exit_codes::with_list(Args::command());
    if program == "mco" { command } else { renamed(command.bin_name(program), program) }
}

fn renamed(command: clap::Command, program: &str) -> clap::Command {
    let after = command.get_after_help().map(|text| print::renamed(&text.to_string(), program));
    let command = command.mut_subcommands(|command| renamed(command, program));
    match after {
        Some(after) => command.after_help(after),
        None => command,
    }
}

/// Inserts the subcommand that the name of the binary stands for.
fn with_subcommand(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let name = args.first().and_then(|arg| Path::new(arg).file_name());
    let process = PROCESSES.iter().find(|(process, _)| name.is_some_and(|name| name == *process));
    if let Some((_, command)) = process {
        args.insert(1, OsString::from(command));
    }
    args
}

/// A subcommand.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Up(up::UpArgs),
    Down(down::DownArgs),
    Status(status::StatusArgs),
    Get(get::GetArgs),
    Version(version::VersionArgs),
    Events(events::EventsArgs),
    Logs(logs::LogsArgs),
    Doctor(doctor::DoctorArgs),
    MustGather(must_gather::MustGatherArgs),
    Apply(apply::ApplyArgs),
    Delete(delete::DeleteArgs),
    Rollout(rollout::RolloutArgs),
    Drift(drift::DriftArgs),
    Node(node::NodeArgs),
    Token(token::TokenArgs),
    Takeover(takeover::TakeoverArgs),
    Pointer(pointer::PointerArgs),
    Render(render::RenderArgs),
    Check(check::CheckArgs),
    Diff(diff::DiffArgs),
    Plan(plan::PlanArgs),
    Cat(cat::CatArgs),
    Why(why::WhyArgs),
    Simulate(simulate::SimulateArgs),
    Convert(convert::ConvertArgs),
    Crds(crds::CrdsArgs),
    Controller(controller::ControllerArgs),
    Operator(operator::OperatorArgs),
    Apiserver(apiserver::ApiserverArgs),
    ApiserverWatcher(apiserver_watcher::WatcherArgs),
    Daemon(daemon::DaemonArgs),
    Host(host::HostArgs),
    Install(install::InstallArgs),
    Uninstall(uninstall::UninstallArgs),
    Join(join::JoinArgs),
    Server(server::ServerArgs),
    Completion(completion::CompletionArgs),
    Manual(manual::ManualArgs),
    ExitCodes(exit_codes::ExitCodesArgs),
    #[command(name = "surroundings", hide = true)]
    Kubelets(kubelets::KubeletsArgs),
}

impl Command {
    /// Returns the exit code for a command that failed.
    pub(crate) fn failure_code(&self) -> ExitCode {
        match self {
            // As in diff(1), code 1 says that configs or nodes differ, that a takeover is forbidden, or
            // that `doctor` has warnings.
            Self::Diff(_)
            | Self::Drift(_)
            | Self::Host(_)
            | Self::Takeover(_)
            | Self::Doctor(_) => ExitCode::from(2),
            Self::Up(_)
            | Self::Down(_)
            | Self::Status(_)
            | Self::Get(_)
            | Self::Events(_)
            | Self::Logs(_)
            | Self::Version(_)
            | Self::MustGather(_)
            | Self::Apply(_)
            | Self::Delete(_)
            | Self::Rollout(_)
            | Self::Node(_)
            | Self::Token(_)
            | Self::Pointer(_)
            | Self::Render(_)
            | Self::Check(_)
            | Self::Plan(_)
            | Self::Cat(_)
            | Self::Why(_)
            | Self::Simulate(_)
            | Self::Convert(_)
            | Self::Crds(_)
            | Self::Controller(_)
            | Self::Operator(_)
            | Self::Apiserver(_)
            | Self::ApiserverWatcher(_)
            | Self::Daemon(_)
            | Self::Install(_)
            | Self::Uninstall(_)
            | Self::Join(_)
            | Self::Server(_)
            | Self::Completion(_)
            | Self::Manual(_)
            | Self::ExitCodes(_)
            | Self::Kubelets(_) => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_the_program_as_it_was_called() {
        let mut command = definition("kubectl mco");
        let get = command.find_subcommand_mut("get").unwrap().render_help().to_string();
        assert!(get.contains("  kubectl mco get mcp "), "{get}");
        assert!(definition("mco").render_help().to_string().contains("  mco up "));
        definition("kubectl mco").debug_assert();
    }

    // covers: PROC-1
    #[test]
    fn a_process_name_stands_for_its_subcommand() {
        let rows = [
            (
                "/usr/bin/machine-config-controller start",
                "/usr/bin/machine-config-controller controller start",
            ),
            ("machine-config-operator start", "machine-config-operator operator start"),
            ("/opt/mco controller start", "/opt/mco controller start"),
        ];
        for (given, expected) in rows {
            let args = with_subcommand(given.split(' ').map(OsString::from));
            let expected: Vec<_> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(args, expected);
        }
    }
}
