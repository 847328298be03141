//! `mco daemon firstboot-complete-machineconfig`: what Ignition cannot set, before the kubelet starts.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use mco_cluster::{Shutdown, report::chain, telemetry};
use mco_daemon::{
    disk,
    first_boot::{Completed, complete},
};
use mco_host::{Host, Root, SystemdSystem};
use tracing::{error, info};

/// Compat: the reference's pause between two tries.
const TRY_AGAIN: Duration = Duration::from_mins(1);

/// Complete the installation of this machine: OS image, kernel arguments, kernel and extensions
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct FirstBootArgs {
    /// Directory that is the machine's root
    #[arg(long, default_value = "/rootfs")]
    root_mount: PathBuf,
    /// Only keep the names of network interfaces as they are, and end
    #[arg(long)]
    persist_nics: bool,
    /// MachineConfig to complete
    #[arg(long, default_value = disk::ENCAPSULATED)]
    machineconfig_file: String,
}

const NOTES: &str = "\
Run by systemd on the first boot, before the kubelet. A machine that has everything already goes on
without a reboot. What fails is undone and tried again every minute, so that the kubelet stays where it
is until the machine is complete.";

/// Tries until it is done.
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
        let told = runtime.block_on(async {
            tokio::select! {
                () = shutdown.requested() => true,
                () = tokio::time::sleep(TRY_AGAIN) => false,
            }
        });
        if told {
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
        Completed::Nothing => info!("There is no {} to complete", args.machineconfig_file),
        Completed::Matches(config) => info!("This machine has all of {config}"),
        Completed::Rebooting(config) => info!("This machine reboots into {config}"),
    }
    Ok(ExitCode::SUCCESS)
}
