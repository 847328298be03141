//! `mco daemon start`: the daemon of one node, alone.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use mco_api::NodeName;
use mco_cluster::{
    NoteCount, Reporter, Shutdown,
    admin::Admin,
    client,
    telemetry::{self, Format},
};
use mco_daemon::simulate::{Machine, Power, simulate};
use tokio::sync::watch;

use crate::fault::Advice;

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
pub(crate) struct StartArgs {
    /// Node that this machine is
    #[arg(long, env = "NODE_NAME")]
    node_name: Option<String>,
    /// Directory that is the machine's root; made where it is missing
    #[arg(long, default_value = "/rootfs")]
    root_mount: PathBuf,
    /// How to reach the API server; the pod's own credentials when left out
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Where metrics are served
    #[arg(long, default_value = "127.0.0.1:8797")]
    metrics_url: SocketAddr,
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
pub(crate) fn run(args: &DaemonArgs) -> anyhow::Result<ExitCode> {
    let DaemonCommand::Start(args) = &args.command;
    let StartArgs { node_name, root_mount, kubeconfig, metrics_url, boot_seconds } = args;
    let node: NodeName = match node_name {
        Some(name) if !name.is_empty() => name.parse()?,
        _ => {
            return Err(Advice::error("node-name is required", "add --node-name or set NODE_NAME"));
        }
    };
    telemetry::start(Format::Text, tracing::Level::INFO)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("cannot wait for signals")?;
        let client = client::connect(kubeconfig.as_deref()).await?;
        let mut registry = prometheus_client::registry::Registry::default();
        let count = NoteCount::register(&mut registry);
        let admin = Admin::listen(*metrics_url, Arc::new(registry)).await?;
        let reporter = Reporter::new(client.clone(), "machineconfigdaemon", count);
        let machine = Machine {
            node,
            root: root_mount.clone(),
            boot_time: Duration::from_secs(*boot_seconds),
            power: watch::Sender::new(Power::Off),
        };
        let serving = admin.serve(&shutdown);
        let running = async {
            let ended = Box::pin(simulate(machine, client, reporter, shutdown.clone())).await;
            shutdown.request();
            ended
        };
        let ((), ended) = tokio::join!(serving, running);
        ended?;
        Ok(ExitCode::SUCCESS)
    })
}
