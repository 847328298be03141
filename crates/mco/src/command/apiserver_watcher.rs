//! `mco apiserver-watcher`: keeps the machine out of the load balancer of the API server while the API
//! server on it is not healthy.

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;
use mco_api::duration;
use mco_cluster::{Shutdown, client, probe::LocalProbe, report::chain, telemetry};
use mco_core::api_routes::{ApiRoutes, FileChange};
use mco_host::{Root, RootError};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::print::Screen;

/// Time between two lookups of the load balancer's addresses.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(30);

/// Mode of the files.
const MODE: u32 = 0o644;

/// Withdraw this machine from the API server's load balancer while its API server is not healthy
#[derive(Debug, clap::Args)]
pub(crate) struct WatcherArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Run(RunArgs),
    /// Print the version
    Version,
}

/// Probe the API server of this machine until stopped
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
struct RunArgs {
    /// URL of the API server behind the load balancer, with the path of its health; its port and path
    /// are probed on this machine
    #[arg(long, value_name = "URL")]
    health_check_url: String,
    /// Root directory of the machine
    #[arg(long, default_value = "/rootfs", value_name = "DIR")]
    root_mount: PathBuf,
    /// Time between two probes
    #[arg(long, default_value = "2s", value_parser = duration::parse, value_name = "TIME")]
    interval: Duration,
}

const NOTES: &str = "\
Writes the empty file /run/cloud-routes/ADDRESS.up for each address of the load balancer after one
successful probe, and ADDRESS.down in its place after eight failures in a row, or when the process is
stopped. A program of the platform, such as gcp-routes.service, sets up the routes accordingly.";

/// Watches the API server of this machine.
pub(crate) fn run(
    args: &WatcherArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let args = match &args.action {
        Action::Version => {
            writeln!(screen, "APIServerWatcher {}", env!("CARGO_PKG_VERSION"))?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Run(args) => args,
    };
    let level = if verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
    telemetry::start(telemetry::Format::Text, level)?;
    client::use_ring();
    let probe = LocalProbe::new(&args.health_check_url)?;
    let root = Root::open(&args.root_mount)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals().context("failed to install signal handlers")?;
        let mut routes = ApiRoutes::default();
        let mut files = Files { root, pending: routes.resolve(probe.addresses().await?) };
        tokio::select! {
            () = shutdown.requested() => {}
            () = watch(&probe, &mut files, &mut routes, args.interval) => {}
        }
        files.write(routes.withdraw())?;
        info!("Withdrew this machine from the load balancer");
        Ok(ExitCode::SUCCESS)
    })
}

/// Probes the API server; never returns.
async fn watch(probe: &LocalProbe, files: &mut Files, routes: &mut ApiRoutes, interval: Duration) {
    let mut resolved = Instant::now();
    loop {
        let checked = probe.check().await;
        if let Err(error) = &checked {
            warn!(error = chain(error), "The API server of this machine is not healthy");
        }
        let was_up = routes.is_up();
        let mut changes = routes.observe(checked.is_ok());
        if !changes.is_empty() {
            info!(was_up, is_up = routes.is_up(), "The state of the API server changed");
        }
        if resolved.elapsed() >= RESOLVE_INTERVAL {
            resolved = Instant::now();
            match probe.addresses().await {
                Ok(addresses) => changes.extend(routes.resolve(addresses)),
                Err(error) => warn!(error = chain(&error), "Kept the last known addresses"),
            }
        }
        if let Err(error) = files.write(changes) {
            error!(error = chain(&error), "Failed to write the state of the API server");
        }
        sleep(interval).await;
    }
}

/// The files that tell the state.
struct Files {
    root: Root,
    /// Changes that are not written yet.
    pending: Vec<FileChange>,
}

impl Files {
    /// Writes changes, after those that failed before.
    fn write(&mut self, changes: Vec<FileChange>) -> Result<(), RootError> {
        self.pending.extend(changes);
        for change in &self.pending {
            match change {
                FileChange::Remove(path) => drop(self.root.remove(path)?),
                FileChange::Write(path) => self.root.write(path, b"", MODE)?,
            }
        }
        self.pending.clear();
        Ok(())
    }
}
