//! `mco daemon start`: runs the daemon of one node.

mod first_boot;

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mco_api::NodeName;
use mco_apply::confirm::standby::Program;
use mco_cluster::{
    Health, NoteCount, Reporter, Shutdown,
    admin::StatePage,
    client::{self, Client, Identity, ReadFile},
    lease::LeadershipEnd,
    report::chain,
};
use mco_core::{
    render::Build,
    takeover::{AdoptedBuild, Order},
};
use mco_daemon::{
    Clients, DaemonContext, Limits,
    kubelet::HealthAddress,
    metrics::Metrics,
    previous_logs,
    simulate::{FirstConfig, Machine, Power, simulate},
    state::SharedState,
};
use mco_host::{Host, Root, SystemdSystem, kubelet_credentials, os::CommandRunner as _};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    command::host::{once, pivot},
    error::error_with_hint,
    print::Screen,
    process::{self, ProcessArgs},
};

const COMPONENT: &str = "machineconfigdaemon";
const IDENTITY: Identity = Identity::new("machine-config-daemon");

/// Time after which the daemon exits when it was asked to shut down: it first finishes a change of
/// the machine. Shorter than the grace period of its pods in `deploy/`, which is ten minutes.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(590);

/// Time in which a machine has to go down after it was told to reboot: longer than systemd waits for
/// a service to stop.
const REBOOT_LIMIT: Duration = Duration::from_mins(10);

/// Credentials with which OpenShift's kubelet asks for its own, which are not those of a node.
const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";

/// Credentials that OpenShift's kubelet got.
const OPENSHIFT_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";

/// Returns the kubeconfigs of the kubelet that the machine has, whichever distribution of Kubernetes
/// it runs.
fn kubelet_kubeconfigs(tree: &Root) -> anyhow::Result<Vec<&'static str>> {
    let own = tree.exists(OPENSHIFT_KUBECONFIG)?.then_some(OPENSHIFT_KUBECONFIG);
    let others = kubelet_credentials(tree)?.into_iter();
    Ok(own.into_iter().chain(others.filter(|path| *path != BOOTSTRAP_KUBECONFIG)).collect())
}

/// Run the daemon of one node
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    command: DaemonCommand,
    /// Log level; 4 and above logs everything
    #[arg(long = "v", global = true, hide = true, default_value_t = 2)]
    verbosity: u8,
}

#[derive(Debug, clap::Subcommand)]
enum DaemonCommand {
    Start(Box<StartArgs>),
    FirstbootCompleteMachineconfig(first_boot::FirstBootArgs),
    Pivot(pivot::DaemonPivotArgs),
    /// Print the version
    Version,
}

/// Apply the config of this node's pool until stopped
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct StartArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Name of this node
    #[arg(long, env = "NODE_NAME")]
    node_name: Option<String>,
    /// Root directory of the machine; created if missing
    #[arg(long, default_value = "/rootfs")]
    root_mount: PathBuf,
    /// Minutes to prove healthy after a reboot before the daemon rolls back the new config, unless
    /// the pool sets another time; 0 disables the rollback
    #[arg(long, default_value_t = 15, value_name = "MINUTES")]
    confirm_minutes: u64,
    /// Change the machine although another operator runs the cluster; without the flag, nothing is
    /// changed there
    #[arg(long)]
    take_over: bool,
    /// Check the health of the kubelet
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    kubelet_healthz_enabled: bool,
    /// Health endpoint of the kubelet
    #[arg(long, default_value = "http://localhost:10248/healthz", value_name = "URL")]
    kubelet_healthz_endpoint: HealthAddress,
    /// Apply this MachineConfig or Ignition config once, without a cluster, and exit; `mco host
    /// apply` takes several
    #[arg(long, value_name = "FILE")]
    once_from: Option<PathBuf>,
    /// With --once-from: skip the reboot
    #[arg(long)]
    skip_reboot: bool,
    /// Seconds that a simulated boot takes
    #[arg(long, default_value_t = 2)]
    boot_seconds: u64,
    /// Rejected: hosted control planes are not supported
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    desired_configmap: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  mco daemon start --node-name worker-0
  mco daemon start --node-name worker-0 --root-mount /tmp/worker-0 --kubeconfig .mco/kubeconfig

A machine with systemd at the root mount is changed for real: units through its systemd, and a
reboot is a reboot. The daemon updates its node with the kubelet's credentials if they exist: those
of OpenShift, kubeadm, K3s, RKE2, k0s or MicroK8s. A node without a config
on record keeps its files; the rest of the pool's config is applied with the next rollout.

Any other directory is a simulated machine: its files are real, units are enabled by links as
systemctl --root does, and a reboot is a new boot id. It gets the config of its pool at first boot.";

/// Runs the daemon until SIGTERM or SIGINT, or applies one config with `--once-from`.
pub(crate) fn run(
    args: &DaemonArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let verbose = verbose || args.verbosity >= 4;
    match &args.command {
        DaemonCommand::Start(args) => match args.once_from.as_deref() {
            Some(path) if !path.as_os_str().is_empty() => {
                once::run(&args.root_mount, path, !args.skip_reboot, screen)
            }
            Some(_) | None => start(args, verbose),
        },
        DaemonCommand::FirstbootCompleteMachineconfig(args) => first_boot::run(args, verbose),
        DaemonCommand::Pivot(args) => pivot::run_for_daemon(args, screen),
        DaemonCommand::Version => {
            let Build { version, hash } = process::build();
            writeln!(screen, "MachineConfigDaemon {version}-{hash}")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn start(args: &StartArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let StartArgs { process, root_mount, confirm_minutes, boot_seconds, .. } = args;
    let StartArgs { kubelet_healthz_enabled, kubelet_healthz_endpoint, .. } = args;
    let node = args.node()?;
    if args.desired_configmap.is_some() {
        let text = "--desired-configmap is not supported";
        return Err(error_with_hint(
            text,
            "hosted control planes are not supported; omit the flag",
        ));
    }
    let is_real = root_mount.exists() && SystemdSystem::runs_in(&Root::open(root_mount)?)?;
    let server = if is_real && process.kubeconfig.is_none() { server(root_mount)? } else { None };
    let confirm = Duration::from_secs(confirm_minutes.saturating_mul(60));
    let limits = Limits { confirm, ..Limits::default() };
    let mut ended = Ok(());
    let glass = SharedState::default();
    let shown = glass.clone();
    let page: StatePage = Arc::new(move || shown.json());
    let order = args.order();
    let health = Health::default();
    let watched = health.clone();
    let register = |registry: &mut _| (NoteCount::register(registry), Metrics::register(registry));
    let override_server = server.clone();
    let client_options = process.client_options(IDENTITY);
    let options = process::ProcessOptions {
        state: Some(page),
        server,
        // The daemon runs on every machine and has little work at a time: a thread per processor
        // would dominate its memory on large machines.
        threads: Some(1),
        shutdown_limit: SHUTDOWN_LIMIT,
        health,
        ..process::ProcessOptions::new(client_options.clone())
    };
    let work = |(notes, metrics), client: Client, shutdown| async {
        log_version();
        if let Some(server) = override_server {
            info!("overriding kubernetes api to {server}");
        }
        let with_metrics = |clients: Clients, speaker: Client| DaemonContext {
            metrics,
            health: watched,
            state: glass,
            limits,
            order: Some((process::build(), order)),
            kubelet: (is_real && *kubelet_healthz_enabled)
                .then(|| kubelet_healthz_endpoint.clone()),
            ..DaemonContext::new(clients, Reporter::new(speaker, COMPONENT, notes))
        };
        ended = if is_real {
            manage(node, root_mount, client, &client_options, with_metrics, shutdown).await
        } else {
            let boot_time = Duration::from_secs(*boot_seconds);
            let power = watch::Sender::new(Power::Off);
            let first = FirstConfig::ApiServer;
            let machine = Machine { node, root: root_mount.clone(), boot_time, power, first };
            let around = with_metrics(client.clone().into(), client);
            Box::pin(simulate(machine, around, shutdown)).await.map_err(Into::into)
        };
        LeadershipEnd::Released
    };
    let code = process::run(process, verbose, options, register, work)?;
    ended.map(|()| code)
}

impl StartArgs {
    /// Returns the name of the node.
    fn node(&self) -> anyhow::Result<NodeName> {
        match self.node_name.as_deref() {
            Some(name) if !name.is_empty() => Ok(name.parse()?),
            _ => Err(error_with_hint("node-name is required", "add --node-name or set NODE_NAME")),
        }
    }

    /// Returns the order of the administrator about a cluster of another operator.
    fn order(&self) -> Order {
        if self.take_over { Order::TakeOver(AdoptedBuild::OfCluster) } else { Order::HandsOff }
    }
}

fn log_version() {
    let Build { version, hash } = process::build();
    info!("Version: {version} ({hash})");
}

/// Runs the daemon of a real machine until shutdown.
async fn manage(
    node: NodeName,
    root: &Path,
    own: Client,
    options: &client::Options,
    with_metrics: impl FnOnce(Clients, Client) -> DaemonContext,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let tree = Root::open(root)?;
    let node_client = kubelet_client(&tree, options).await?.unwrap_or_else(|| {
        warn!(
            "Found no kubelet credentials: using the daemon's own, which the manifests do not permit \
             to update nodes"
        );
        own.clone()
    });
    let log_root = tree.try_clone()?;
    let namespace = client::namespace(&own).to_owned();
    let host = Host { root: tree, system: SystemdSystem::open(root)? };
    let mut around = with_metrics(Clients { own, node: node_client.clone() }, node_client);
    around.limits.reboot = Some(REBOOT_LIMIT);
    // A separate connection, because pulling images may take long and must not delay an update.
    let commands = Mutex::new(SystemdSystem::open(root)?);
    around.commands = Some(Arc::new(move |command: &[&str]| {
        commands.lock().unwrap_or_else(PoisonError::into_inner).run(command)
    }));
    around.standby = Program::own()
        .inspect_err(|error| warn!(error = chain(error), "Failed to find the path of this program"))
        .ok();
    Box::pin(mco_daemon::run(node, host, around, shutdown)).await;
    if let Err(error) = previous_logs::save(&log_root, &namespace) {
        warn!(error = chain(&error), "Failed to save the log");
    }
    Ok(())
}

/// Returns a function that reads files of the machine, and none outside of it.
fn reader(tree: &Root) -> anyhow::Result<ReadFile> {
    let tree = tree.try_clone()?;
    Ok(Arc::new(move |path: &str| {
        let bytes = tree.read(path).map_err(io::Error::other)?;
        bytes.ok_or_else(|| io::ErrorKind::NotFound.into())
    }))
}

/// Returns the address of the API server from the machine's kubeconfigs, if any has one.
fn server(root: &Path) -> anyhow::Result<Option<String>> {
    let tree = Root::open(root)?;
    let bootstrap = tree.exists(BOOTSTRAP_KUBECONFIG)?.then_some(BOOTSTRAP_KUBECONFIG);
    for path in bootstrap.into_iter().chain(kubelet_kubeconfigs(&tree)?) {
        match client::server(path, reader(&tree)?) {
            Ok(Some(server)) => return Ok(Some(server)),
            // A kubeconfig that is written only on other machines is empty here.
            Ok(None) => {}
            Err(error) => warn!(path, error = chain(&error), "Failed to read the kubeconfig"),
        }
    }
    Ok(None)
}

/// Returns a client with the kubelet's credentials, if the machine has any.
async fn kubelet_client(tree: &Root, options: &client::Options) -> anyhow::Result<Option<Client>> {
    for path in kubelet_kubeconfigs(tree)? {
        match client::connect_through(path, reader(tree)?, options).await {
            Ok(client) => {
                info!("Using kubelet credentials from {path}");
                return Ok(Some(client));
            }
            Err(error) => {
                warn!(path, error = chain(&error), "Failed to use the kubelet credentials");
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfigs_of_every_distribution_are_used_but_not_those_of_a_bootstrap() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Root::open(folder.path()).unwrap();
        tree.write(BOOTSTRAP_KUBECONFIG, b"", 0o600).unwrap();
        assert!(kubelet_kubeconfigs(&tree).unwrap().is_empty());
        let k3s = "/var/lib/rancher/k3s/agent/kubelet.kubeconfig";
        for path in [k3s, "/etc/kubernetes/kubelet.conf", OPENSHIFT_KUBECONFIG] {
            tree.write(path, b"", 0o600).unwrap();
        }
        let want = [OPENSHIFT_KUBECONFIG, "/etc/kubernetes/kubelet.conf", k3s];
        assert_eq!(kubelet_kubeconfigs(&tree).unwrap(), want);
    }
}
