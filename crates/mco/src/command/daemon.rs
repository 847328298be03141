//! `mco daemon start`: the daemon of one node, alone.

mod first_boot;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use mco_api::NodeName;
use mco_cluster::{
    NoteCount, Reporter, Shutdown,
    admin::StatePage,
    client::{self, Client},
    lease::Ended,
    report::chain,
};
use mco_daemon::{
    Clients, Limits, Surroundings,
    metrics::Metrics,
    simulate::{Machine, Power, simulate},
    state::Glass,
};
use mco_host::{Host, Root, SystemdSystem};
use tokio::sync::watch;
use tracing::info;

use crate::{
    fault::Advice,
    process::{self, ProcessArgs},
};

const COMPONENT: &str = "machineconfigdaemon";

/// The kubelet's own credentials, on the machine.
const KUBELET: &str = "/var/lib/kubelet/kubeconfig";

/// Run the daemon of one node
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    command: DaemonCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DaemonCommand {
    Start(StartArgs),
    FirstbootCompleteMachineconfig(first_boot::FirstBootArgs),
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
    /// Minutes that a machine has to prove healthy after a reboot before it takes the new config back,
    /// where its pool does not say; 0 keeps it whatever happens
    #[arg(long, default_value_t = 15, value_name = "MINUTES")]
    confirm_minutes: u64,
    /// How many seconds a simulated boot takes
    #[arg(long, default_value_t = 2)]
    boot_seconds: u64,
}

const EXAMPLES: &str = "\
Examples:
  mco daemon start --node-name worker-0
  mco daemon start --node-name worker-0 --root-mount /tmp/worker-0 --kubeconfig .mco/kubeconfig

Where the machine at the root mount runs systemd, it is changed for real: units by its own systemd, a
reboot is a reboot, and what the daemon says of its node it says with the kubelet's own credentials
(/var/lib/kubelet/kubeconfig) where they are there. A node that nobody managed so far keeps what it
has; what its pool's config has besides comes in its turn.

Any other directory is a simulated machine: its files are real, units are enabled by links as
systemctl --root does, and a reboot is a new boot id. It gets the config of its pool first.";

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(args: &DaemonArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let args = match &args.command {
        DaemonCommand::Start(args) => args,
        DaemonCommand::FirstbootCompleteMachineconfig(args) => {
            return first_boot::run(args, verbose);
        }
    };
    let StartArgs { process, node_name, root_mount, confirm_minutes, boot_seconds } = args;
    let node: NodeName = match node_name {
        Some(name) if !name.is_empty() => name.parse()?,
        _ => {
            return Err(Advice::error("node-name is required", "add --node-name or set NODE_NAME"));
        }
    };
    let is_real = root_mount.exists() && SystemdSystem::runs_in(&Root::open(root_mount)?)?;
    let confirm = Duration::from_secs(confirm_minutes.saturating_mul(60));
    let limits = Limits { confirm, ..Limits::default() };
    let mut ended = Ok(());
    let glass = Glass::default();
    let shown = glass.clone();
    let page: StatePage = Arc::new(move || shown.json());
    let register = |registry: &mut _| (NoteCount::register(registry), Metrics::register(registry));
    let work = |(notes, metrics), client: Client, shutdown| async {
        let counted = |clients: Clients, speaker: Client| Surroundings {
            metrics,
            glass,
            limits,
            ..Surroundings::new(clients, Reporter::new(speaker, COMPONENT, notes))
        };
        ended = if is_real {
            manage(node, root_mount, client, counted, shutdown).await
        } else {
            let boot_time = Duration::from_secs(*boot_seconds);
            let power = watch::Sender::new(Power::Off);
            let machine = Machine { node, root: root_mount.clone(), boot_time, power };
            let around = counted(client.clone().into(), client);
            Box::pin(simulate(machine, around, shutdown)).await.map_err(Into::into)
        };
        Ended::Released
    };
    let code = process::run_with_state(process, verbose, Some(page), register, work)?;
    ended.map(|()| code)
}

/// Runs the daemon of a real machine until told to stop.
async fn manage(
    node: NodeName,
    root: &Path,
    own: Client,
    counted: impl FnOnce(Clients, Client) -> Surroundings,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let kubelet = client::connect_below(root, KUBELET).await;
    let node_client = kubelet.unwrap_or_else(|error| {
        info!(error = chain(&error), "Using the daemon's own credentials for the node");
        own.clone()
    });
    let host = Host { root: Root::open(root)?, system: SystemdSystem::open(root)? };
    let around = counted(Clients { own, node: node_client.clone() }, node_client);
    match Box::pin(mco_daemon::run(node, host, around, shutdown.clone())).await {
        mco_daemon::Ended::Stopped => {}
        // Whoever starts us again before the machine is down would find nothing to do.
        mco_daemon::Ended::Rebooting => shutdown.requested().await,
    }
    Ok(())
}
