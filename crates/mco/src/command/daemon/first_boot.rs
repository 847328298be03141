//! `mco daemon firstboot-complete-machineconfig`: completes the installation before the kubelet
//! starts, with the parts of a config that Ignition cannot set.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use mco_apply::{
    disk,
    first_boot::{Completed, complete},
};
use mco_cluster::{Shutdown, report::chain, telemetry};
use mco_host::{Host, Root, SystemdSystem};
use tracing::{error, info};

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
}

const NOTES: &str = "\
Run by systemd on the first boot, before the kubelet. A machine that already has the config continues
without a reboot. A failed attempt is rolled back and retried every minute, so that the kubelet does
not start before the installation is complete.";

/// Retries until the installation is complete.
pub(super) fn run(args: &FirstBootArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let level = if verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
    telemetry::start(telemetry::Format::Text, level)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shutdown = runtime.block_on(async { Shutdown::on_signals() })?;
    loop {
        match attempt(args) {
            Ok(code) => return Ok(code),
            Err(fault) => error!("error: {}", chain(fault.as_ref())),
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

fn attempt(args: &FirstBootArgs) -> anyhow::Result<ExitCode> {
    let root = Root::open(&args.root_mount)?;
    let mut host = Host { root, system: SystemdSystem::open(&args.root_mount)? };
    if args.persist_nics {
        host.system.persist_nics()?;
        return Ok(ExitCode::SUCCESS);
    }
    match complete(&mut host, &args.machineconfig_file)? {
        Completed::Nothing => info!(path = args.machineconfig_file, "Found no config to complete"),
        Completed::Matches(config) => info!(config, "The machine already has the config"),
        Completed::Rebooting(config) => info!(config, "Rebooting into the config"),
    }
    Ok(ExitCode::SUCCESS)
}
