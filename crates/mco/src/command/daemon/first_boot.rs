//! `mco daemon firstboot-complete-machineconfig`: completes the installation before the kubelet
//! starts, with the parts of a config that Ignition cannot set.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use mco_apply::{
    disk,
    first_boot::{Completed, complete},
};
use mco_cluster::{Shutdown, report::chain, telemetry};
use mco_host::{Host, Root, SystemdSystem};
use tokio::runtime::Runtime;
use tracing::{error, info};

use crate::command::join::FailureReport;

/// Compat: the reference's pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);

/// Complete the installation of this machine: OS image, kernel arguments, kernel and extensions
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct FirstBootArgs {
    /// Root directory of the machine
    #[arg(long, default_value = "/rootfs")]
    root_mount: PathBuf,
    /// Only persist the names of network interfaces, and exit
    #[arg(long)]
    persist_nics: bool,
    /// Path of the MachineConfig on the machine
    #[arg(long, default_value = disk::ENCAPSULATED)]
    machineconfig_file: String,
    /// URL of the config server, which gets a report if an attempt fails
    #[arg(long, env = "MCO_REPORT_SERVER", value_name = "URL", requires = "report_ca")]
    report_server: Option<String>,
    /// Pool of the machine; that in the name of the config if omitted
    #[arg(long, env = "MCO_REPORT_POOL", value_name = "POOL")]
    report_pool: Option<String>,
    /// File with the certificates that sign the server's (PEM)
    #[arg(long, env = "MCO_REPORT_CA", value_name = "FILE")]
    report_ca: Option<PathBuf>,
    /// File with the join token, which is removed when the installation is complete
    #[arg(long, env = "MCO_REPORT_TOKEN_FILE", value_name = "FILE")]
    report_token_file: Option<PathBuf>,
}

const NOTES: &str = "\
Run by systemd on the first boot, before the kubelet. A machine that already has the config continues
without a reboot. A failed attempt is rolled back and retried every minute, so that the kubelet does
not start before the installation is complete. With --report-server the config server learns of a
failure, and `mco status` shows it; machine-config-daemon-firstboot.service reads the variables
MCO_REPORT_SERVER, MCO_REPORT_POOL, MCO_REPORT_CA and MCO_REPORT_TOKEN_FILE from
/etc/mco/first-boot.env, which `mco pointer` makes a part of the machine's first config.";

/// Retries until the installation is complete.
pub(super) fn run(args: &FirstBootArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let level = if verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
    telemetry::start(telemetry::Format::Text, level)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shutdown = runtime.block_on(async { Shutdown::on_signals() })?;
    let mut reported = String::new();
    loop {
        match attempt(args) {
            Ok(()) => {
                remove_token(args);
                return Ok(ExitCode::SUCCESS);
            }
            Err(fault) => {
                let text = chain(fault.as_ref());
                error!("error: {text}");
                if text != reported && report(args, &text, &runtime) {
                    reported = text;
                }
            }
        }
        info!("Sleeping 1 minute for retry");
        let is_stopped = runtime.block_on(async {
            tokio::select! {
                () = shutdown.requested() => true,
                () = tokio::time::sleep(RETRY_INTERVAL) => false,
            }
        });
        if is_stopped {
            return Ok(ExitCode::FAILURE);
        }
    }
}

/// Reports a failed attempt; returns true if the server has the report, or there is none to tell.
fn report(args: &FirstBootArgs, error: &str, runtime: &Runtime) -> bool {
    let Some(server) = &args.report_server else { return true };
    let sent = FailureReport::of_first_boot(
        &args.root_mount,
        server,
        args.report_pool.as_deref(),
        args.report_ca.as_deref(),
        args.report_token_file.as_deref(),
    )
    .and_then(|report| report.send("complete", error, runtime));
    match &sent {
        Ok(()) => info!("Reported the failure to the config server"),
        Err(fault) => error!("Failed to report the failure: {}", chain(fault.as_ref())),
    }
    sent.is_ok()
}

/// Removes the token, which has no further use.
fn remove_token(args: &FirstBootArgs) {
    let Some(path) = args.report_token_file.as_ref().filter(|_| !args.persist_nics) else { return };
    // In the container of the daemon, the root of the machine is a directory.
    let inside = path.strip_prefix(&args.root_mount).unwrap_or(path);
    let inside = Path::new("/").join(inside);
    let removed =
        Root::open(&args.root_mount).and_then(|root| root.remove(&inside.to_string_lossy()));
    if let Err(fault) = removed {
        error!("Failed to remove {}: {}", path.display(), chain(&fault));
    }
}

fn attempt(args: &FirstBootArgs) -> anyhow::Result<()> {
    let root = Root::open(&args.root_mount)?;
    let mut host = Host { root, system: SystemdSystem::open(&args.root_mount)? };
    if args.persist_nics {
        host.system.persist_nics()?;
        return Ok(());
    }
    match complete(&mut host, &args.machineconfig_file)? {
        Completed::Nothing => info!(path = args.machineconfig_file, "Found no config to complete"),
        Completed::Matches(config) => info!(config, "The machine already has the config"),
        Completed::Rebooting(config) => info!(config, "Rebooting into the config"),
    }
    Ok(())
}
