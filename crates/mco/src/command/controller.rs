//! `mco controller`: runs the controller, which renders configs, rolls them out and drains nodes.

mod bootstrap;

use std::{path::PathBuf, process::ExitCode};

use mco_cluster::{Health, NoteCount, client::Identity, lease};
use mco_controller::{Config, Delays, Leader, Metrics};
use tracing::info;

use crate::process::{self, LeaderArgs, ProcessArgs, ProcessOptions};

const IDENTITY: Identity = Identity::new("machine-config-controller");

/// Run the controller: render configs, roll them out, drain nodes
#[derive(Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    #[command(subcommand)]
    command: ControllerCommand,
    /// Accepted for compatibility, without effect: base configs are built in
    #[arg(long, global = true, default_value = "/etc/mcc/templates", value_name = "DIR")]
    templates: PathBuf,
    /// Log level; 4 and above logs everything
    #[arg(long = "v", global = true, hide = true, default_value_t = 2)]
    verbosity: u8,
}

#[derive(Debug, clap::Subcommand)]
enum ControllerCommand {
    /// Run the controller until stopped
    Start(StartArgs),
    Bootstrap(bootstrap::BootstrapArgs),
}

#[derive(Debug, clap::Args)]
struct StartArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Namespace of the leader lease
    #[arg(long, default_value = "kube-system", value_name = "NAMESPACE")]
    resourcelock_namespace: String,
    /// Accepted for compatibility, without effect: metrics are served over plain HTTP, as in the
    /// reference
    #[arg(long, value_delimiter = ',', hide = true)]
    tls_cipher_suites: Vec<String>,
    /// Accepted for compatibility, without effect: metrics are served over plain HTTP, as in the
    /// reference
    #[arg(long, default_value = "VersionTLS12", hide = true)]
    tls_min_version: String,
    /// Accepted for compatibility, without effect: the controller inspects no images
    #[arg(long, default_value = "/var/cache/mcc", hide = true)]
    streams_cache: PathBuf,
    #[command(flatten)]
    leader: LeaderArgs,
}

pub(crate) fn run(args: &ControllerArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let verbose = verbose || args.verbosity >= 4;
    match &args.command {
        ControllerCommand::Start(start) => run_controllers(start, verbose),
        ControllerCommand::Bootstrap(args) => bootstrap::run(args),
    }
}

fn run_controllers(args: &StartArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let timings = args.leader.timings()?;
    let register = |registry: &mut _| (Metrics::register(registry), NoteCount::register(registry));
    let health = Health::default();
    let process = &args.process;
    let options = ProcessOptions {
        health: health.clone(),
        ..ProcessOptions::new(process.client_options(IDENTITY))
    };
    process::run(process, verbose, options, register, |(metrics, notes), client, shutdown| {
        let build = process::build();
        info!(build.version, build.hash, release = args.process.payload_version, "Starting");
        let leader = Leader {
            namespace: args.resourcelock_namespace.clone(),
            identity: lease::identity(),
            timings,
        };
        let config = Config {
            delays: Delays::SHORT,
            leader: Some(leader),
            metrics,
            notes,
            health,
            ..Config::new(build)
        };
        mco_controller::run(config, client, shutdown)
    })
}
