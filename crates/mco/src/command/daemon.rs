//! `mco daemon start`: the daemon of one node, alone.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use mco_api::NodeName;
use mco_cluster::{NoteCount, Reporter, lease::Ended};
use mco_daemon::simulate::{Machine, Power, simulate};
use tokio::sync::watch;

use crate::{
    fault::Advice,
    process::{self, ProcessArgs},
};

/// Run the daemon of one node
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    command: DaemonCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DaemonCommand {
    Start(StartArgs),
}

/// Make this machine what its config says, until stopped
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct StartArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Node that this machine is
    #[arg(long, env = "NODE_NAME")]
    node_name: Option<String>,
    /// Directory that is the machine's root; made where it is missing
    #[arg(long, default_value = "/rootfs")]
    root_mount: PathBuf,
    /// How many seconds a simulated boot takes
    #[arg(long, default_value_t = 2)]
    boot_seconds: u64,
}

const EXAMPLES: &str = "\
Examples:
  mco daemon start --node-name worker-0 --root-mount /tmp/worker-0 --kubeconfig .mco/kubeconfig

The machine is simulated: its files are real, units are enabled by links as systemctl --root does,
and a reboot is a new boot id. A node without a config gets the one of its pool first.";

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &DaemonArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let DaemonCommand::Start(args) = &args.command;
    let StartArgs { process, node_name, root_mount, boot_seconds } = args;
    let node: NodeName = match node_name {
        Some(name) if !name.is_empty() => name.parse()?,
        _ => {
            return Err(Advice::error("node-name is required", "add --node-name or set NODE_NAME"));
        }
    };
    let machine = Machine {
        node,
        root: root_mount.clone(),
        boot_time: Duration::from_secs(*boot_seconds),
        power: watch::Sender::new(Power::Off),
    };
    let mut failed = None;
    let register = |registry: &mut _| NoteCount::register(registry);
    let code = process::run(process, verbose, register, |notes, client, shutdown| async {
        let reporter = Reporter::new(client.clone(), "machineconfigdaemon", notes);
        failed = Box::pin(simulate(machine, client, reporter, shutdown)).await.err();
        Ended::Released
    })?;
    failed.map_or(Ok(code), |error| Err(error.into()))
}
