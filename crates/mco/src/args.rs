//! The command line.

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::Parser as _;

use crate::command::{
    apiserver, apply, cat, check, controller, convert, crds, daemon, delete, diff, down, get,
    operator, plan, render, server, status, surroundings, up, why,
};

/// Machine configuration for Kubernetes nodes: render it, check it, compare it, explain it
#[derive(Debug, clap::Parser)]
#[command(name = "mco", version, after_help = EXAMPLES, propagate_version = true)]
pub(crate) struct Args {
    /// Say more about what is read and what is left aside
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  mco up                                         a whole cluster on this machine
  mco check -f manifests/                        everything that is wrong, at once
  mco render -f manifests/ --pool worker         the name a pool's config will have
  mco diff old.yaml new.yaml                     what a change does, decoded
  mco plan -f manifests/ -f change.yaml          what it does to nodes, in which order
  mco cat rendered.yaml /etc/chrony.conf         one file of a config
  mco why -f manifests/ --pool worker /etc/motd  which MachineConfig put it there";

/// Names under which the reference's images start its processes, and our commands for them.
const PROCESSES: &[(&str, &str)] = &[
    ("machine-config-controller", "controller"),
    ("machine-config-daemon", "daemon"),
    ("machine-config-operator", "operator"),
    ("machine-config-server", "server"),
];

impl Args {
    /// Reads the command line. Called by the name of a process, the binary is that process.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Self {
        Self::parse_from(named(words))
    }
}

/// The words, with the command put in that the binary's own name stands for.
fn named(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let process = PROCESSES.iter().find(|(process, _)| name.is_some_and(|name| name == *process));
    if let Some((_, command)) = process {
        words.insert(1, OsString::from(command));
    }
    words
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Up(up::UpArgs),
    Down(down::DownArgs),
    Status(status::StatusArgs),
    Get(get::GetArgs),
    Apply(apply::ApplyArgs),
    Delete(delete::DeleteArgs),
    Render(render::RenderArgs),
    Check(check::CheckArgs),
    Diff(diff::DiffArgs),
    Plan(plan::PlanArgs),
    Cat(cat::CatArgs),
    Why(why::WhyArgs),
    Convert(convert::ConvertArgs),
    Crds(crds::CrdsArgs),
    Controller(controller::ControllerArgs),
    Operator(operator::OperatorArgs),
    Apiserver(apiserver::ApiserverArgs),
    Daemon(daemon::DaemonArgs),
    Server(server::ServerArgs),
    #[command(hide = true)]
    Surroundings(surroundings::SurroundingsArgs),
}

impl Command {
    /// What the process says when the command could not be carried out.
    pub(crate) fn trouble(&self) -> ExitCode {
        match self {
            // As diff(1): 1 is taken by "they differ".
            Self::Diff(_) => ExitCode::from(2),
            Self::Up(_)
            | Self::Down(_)
            | Self::Status(_)
            | Self::Get(_)
            | Self::Apply(_)
            | Self::Delete(_)
            | Self::Render(_)
            | Self::Check(_)
            | Self::Plan(_)
            | Self::Cat(_)
            | Self::Why(_)
            | Self::Convert(_)
            | Self::Crds(_)
            | Self::Controller(_)
            | Self::Operator(_)
            | Self::Apiserver(_)
            | Self::Daemon(_)
            | Self::Server(_)
            | Self::Surroundings(_) => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: PROC-1
    #[test]
    fn the_binarys_name_stands_for_its_command() {
        let rows = [
            (
                "/usr/bin/machine-config-controller start",
                "/usr/bin/machine-config-controller controller start",
            ),
            ("machine-config-operator start", "machine-config-operator operator start"),
            ("/opt/mco controller start", "/opt/mco controller start"),
        ];
        for (given, expected) in rows {
            let words = named(given.split(' ').map(OsString::from));
            let expected: Vec<_> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(words, expected);
        }
    }
}
