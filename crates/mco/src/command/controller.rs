//! `mco controller`: renders configs, rolls them out, drains nodes.

use std::process::ExitCode;

use mco_cluster::{NoteCount, lease};
use mco_controller::{Config, Leader, Metrics, Settle};

use crate::process::{self, LeaderArgs, ProcessArgs};

/// Run the controller: render configs, roll them out, drain nodes
#[derive(Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    #[command(subcommand)]
    command: ControllerCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ControllerCommand {
    /// Run until told to stop
    Start(StartArgs),
}

#[derive(Debug, clap::Args)]
struct StartArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Namespace of the lease that decides which controller leads
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    resourcelock_namespace: String,
    #[command(flatten)]
    leader: LeaderArgs,
}

pub(crate) fn run(args: &ControllerArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let ControllerCommand::Start(args) = &args.command;
    let timings = args.leader.timings()?;
    let register = |registry: &mut _| (Metrics::register(registry), NoteCount::register(registry));
    process::run(&args.process, verbose, register, |(metrics, notes), client, shutdown| {
        let leader = Leader {
            namespace: args.resourcelock_namespace.clone(),
            identity: lease::identity(),
            timings,
        };
        let config = Config {
            settle: Settle::SHORT,
            leader: Some(leader),
            metrics,
            notes,
            ..Config::new(process::build())
        };
        mco_controller::run(config, client, shutdown)
    })
}
