//! `mco daemon start`: the daemon of one node, alone.

mod first_boot;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mco_api::NodeName;
use mco_cluster::{
    NoteCount, Reporter, Shutdown,
    admin::StatePage,
    client::{self, Client, ReadFile},
    lease::Ended,
    report::chain,
};
use mco_core::render::Build;
use mco_daemon::{
    Clients, Limits, Surroundings,
    confirm::standby::Program,
    kubelet::HealthAddress,
    metrics::Metrics,
    previous_logs,
    simulate::{Machine, Power, simulate},
    state::Glass,
};
use mco_host::{Host, Root, SystemdSystem, os::CommandRunner as _};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    command::host::once,
    fault::Advice,
    print::Screen,
    process::{self, ProcessArgs},
};

const COMPONENT: &str = "machineconfigdaemon";

/// The kubelet's own credentials, on the machine: as OpenShift and as kubeadm have them.
const KUBELET: [&str; 2] = ["/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet.conf"];

/// Where a machine says how it reaches the API server: as OpenShift and as kubeadm have it.
const SERVER: [&str; 3] = ["/etc/kubernetes/kubeconfig", KUBELET[0], KUBELET[1]];

/// Run the daemon of one node
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    command: DaemonCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DaemonCommand {
    Start(Box<StartArgs>),
    FirstbootCompleteMachineconfig(first_boot::FirstBootArgs),
    /// Say which version this is
    Version,
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
    /// Whether to ask the kubelet if it is well
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    kubelet_healthz_enabled: bool,
    /// Where the kubelet says whether it is well
    #[arg(long, default_value = "http://localhost:10248/healthz", value_name = "URL")]
    kubelet_healthz_endpoint: HealthAddress,
    /// Taken for compatibility; nothing here is served over TLS
    #[arg(long, hide = true, value_name = "LIST")]
    tls_cipher_suites: Option<String>,
    /// Taken for compatibility; nothing here is served over TLS
    #[arg(long, hide = true, value_name = "VERSION")]
    tls_min_version: Option<String>,
    /// Apply this MachineConfig or Ignition config once, without a cluster, and end; what mco host apply does
    /// to several
    #[arg(long, value_name = "FILE")]
    once_from: Option<PathBuf>,
    /// With --once-from: leave the reboot to somebody else
    #[arg(long)]
    skip_reboot: bool,
    /// How many seconds a simulated boot takes
    #[arg(long, default_value_t = 2)]
    boot_seconds: u64,
    /// Taken only to be refused in so many words
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    desired_configmap: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  mco daemon start --node-name worker-0
  mco daemon start --node-name worker-0 --root-mount /tmp/worker-0 --kubeconfig .mco/kubeconfig

Where the machine at the root mount runs systemd, it is changed for real: units by its own systemd, a
reboot is a reboot, and what the daemon says of its node it says with the kubelet's own credentials
(/var/lib/kubelet/kubeconfig or /etc/kubernetes/kubelet.conf) where they are there. A node that nobody managed so far keeps what it
has; what its pool's config has besides comes in its turn.

Any other directory is a simulated machine: its files are real, units are enabled by links as
systemctl --root does, and a reboot is a new boot id. It gets the config of its pool first.";

/// Runs until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &DaemonArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    match &args.command {
        DaemonCommand::Start(args) => match args.once_from.as_deref() {
            Some(path) if !path.as_os_str().is_empty() => {
                once::run(&args.root_mount, path, !args.skip_reboot, screen)
            }
            Some(_) | None => start(args, verbose),
        },
        DaemonCommand::FirstbootCompleteMachineconfig(args) => first_boot::run(args, verbose),
        DaemonCommand::Version => {
            let Build { version, hash } = process::build();
            writeln!(screen, "MachineConfigDaemon {version}-{hash}")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn start(args: &StartArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let StartArgs { process, node_name, root_mount, confirm_minutes, boot_seconds, .. } = args;
    let StartArgs { kubelet_healthz_enabled, kubelet_healthz_endpoint, .. } = args;
    let node: NodeName = match node_name {
        Some(name) if !name.is_empty() => name.parse()?,
        _ => {
            return Err(Advice::error("node-name is required", "add --node-name or set NODE_NAME"));
        }
    };
    if args.desired_configmap.is_some() {
        let text = "--desired-configmap is not for this daemon";
        return Err(Advice::error(
            text,
            "hosted control planes are not served; leave the flag out",
        ));
    }
    let is_real = root_mount.exists() && SystemdSystem::runs_in(&Root::open(root_mount)?)?;
    let server = if is_real && process.kubeconfig.is_none() { server(root_mount)? } else { None };
    let confirm = Duration::from_secs(confirm_minutes.saturating_mul(60));
    let limits = Limits { confirm, ..Limits::default() };
    let mut ended = Ok(());
    let glass = Glass::default();
    let shown = glass.clone();
    let page: StatePage = Arc::new(move || shown.json());
    let register = |registry: &mut _| (NoteCount::register(registry), Metrics::register(registry));
    let named = server.clone();
    let work = |(notes, metrics), client: Client, shutdown| async {
        let Build { version, hash } = process::build();
        info!("Version: {version} ({hash})");
        if let Some(server) = named {
            info!("overriding kubernetes api to {server}");
        }
        let counted = |clients: Clients, speaker: Client| Surroundings {
            metrics,
            glass,
            limits,
            kubelet: (is_real && *kubelet_healthz_enabled)
                .then(|| kubelet_healthz_endpoint.clone()),
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
    // It is on every machine and has little to do at a time: a thread for each processor of a large one
    // would be most of what it takes.
    let own = process::Own { state: Some(page), server, threads: Some(1) };
    let code = process::run_as(process, verbose, own, register, work)?;
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
    let tree = Root::open(root)?;
    let node_client = kubelet(&tree).await?.unwrap_or_else(|| {
        warn!(
            "The machine has no credentials of a kubelet ({}): what is said of the node is said \
             with the daemon's own, which the manifests do not let change nodes",
            KUBELET.join(", ")
        );
        own.clone()
    });
    let kept = tree.try_clone()?;
    let host = Host { root: tree, system: SystemdSystem::open(root)? };
    let mut around = counted(Clients { own, node: node_client.clone() }, node_client);
    // Pulling images may take long, and an update must not wait for it.
    let commands = Mutex::new(SystemdSystem::open(root)?);
    around.commands = Some(Arc::new(move |command: &[&str]| {
        commands.lock().unwrap_or_else(PoisonError::into_inner).run(command)
    }));
    around.standby = Program::own()
        .inspect_err(|error| warn!(error = chain(error), "Cannot find out which program this is"))
        .ok();
    let ended = Box::pin(mco_daemon::run(node, host, around, shutdown.clone())).await;
    if let Err(error) = previous_logs::keep(&kept) {
        warn!(error = chain(&error), "The log is not kept");
    }
    match ended {
        mco_daemon::Ended::Stopped => {}
        // Whoever starts us again before the machine is down would find nothing to do.
        mco_daemon::Ended::Rebooting => shutdown.requested().await,
    }
    Ok(())
}

/// Reads the files of a machine, and none outside it.
fn reader(tree: &Root) -> anyhow::Result<ReadFile> {
    let tree = tree.try_clone()?;
    Ok(Arc::new(move |path: &str| {
        let bytes = tree.read(path).map_err(io::Error::other)?;
        bytes.ok_or_else(|| io::ErrorKind::NotFound.into())
    }))
}

/// Where the machine itself finds the API server; none if it does not say.
fn server(root: &Path) -> anyhow::Result<Option<String>> {
    let tree = Root::open(root)?;
    for path in SERVER {
        if !tree.exists(path)? {
            continue;
        }
        match client::server(path, reader(&tree)?) {
            Ok(Some(server)) => return Ok(Some(server)),
            // One that only other machines write is empty here.
            Ok(None) => {}
            Err(error) => warn!(error = chain(&error), "Cannot use {path}"),
        }
    }
    Ok(None)
}

/// A client by the kubelet's own credentials, where the machine has any.
async fn kubelet(tree: &Root) -> anyhow::Result<Option<Client>> {
    for path in KUBELET {
        if !tree.exists(path)? {
            continue;
        }
        match client::connect_through(path, reader(tree)?).await {
            Ok(client) => {
                info!("What is said of the node is said as its kubelet, by {path}");
                return Ok(Some(client));
            }
            Err(error) => warn!(error = chain(&error), "Cannot use the kubelet's {path}"),
        }
    }
    Ok(None)
}
