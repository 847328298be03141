//! The command line.

use std::process::ExitCode;

use crate::command::{apiserver, cat, check, convert, crds, daemon, diff, render, why};

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
  mco check -f manifests/                        everything that is wrong, at once
  mco render -f manifests/ --pool worker         the name a pool's config will have
  mco diff old.yaml new.yaml                     what a change does, decoded
  mco cat rendered.yaml /etc/chrony.conf         one file of a config
  mco why -f manifests/ --pool worker /etc/motd  which MachineConfig put it there";

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Render(render::RenderArgs),
    Check(check::CheckArgs),
    Diff(diff::DiffArgs),
    Cat(cat::CatArgs),
    Why(why::WhyArgs),
    Convert(convert::ConvertArgs),
    Crds(crds::CrdsArgs),
    Apiserver(apiserver::ApiserverArgs),
    Daemon(daemon::DaemonArgs),
}

impl Command {
    /// What the process says when the command could not be carried out.
    pub(crate) fn trouble(&self) -> ExitCode {
        match self {
            // As diff(1): 1 is taken by "they differ".
            Self::Diff(_) => ExitCode::from(2),
            Self::Render(_)
            | Self::Check(_)
            | Self::Cat(_)
            | Self::Why(_)
            | Self::Convert(_)
            | Self::Crds(_)
            | Self::Apiserver(_)
            | Self::Daemon(_) => ExitCode::FAILURE,
        }
    }
}
