//! `mco host confirm`: keeps or rolls back the config that the machine has rebooted into.

use std::{io::Write as _, process::ExitCode, time::Duration};

use mco_apply::{confirm, ledger};
use mco_cluster::{Shutdown, telemetry};
use mco_daemon::{
    DaemonExit,
    startup::{self, Confirmation, Probe},
};
use mco_host::CheckResult;

use super::{
    DIFFERS, MachineArgs,
    apply::{ApplyOptions, apply_again},
    target,
};
use crate::print::Screen;

/// Keep or roll back the config that this machine has rebooted into
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct ConfirmArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Minutes to prove healthy; 15 unless the apply set another time
    #[arg(long, value_name = "MINUTES")]
    within: Option<u64>,
    /// Leave the decision to the daemon of this node, and roll back only if no daemon starts in
    /// time
    #[arg(long, conflicts_with = "within")]
    standby: bool,
}

const NOTES: &str = "\
A machine is healthy if its kubelet answers, where one is to run, and if its own checks pass: every
program in /etc/machine-config-daemon/checks.d must exit with 0. Checks that already failed before
the apply are skipped. A config that does not prove healthy in time is rolled back: all saved paths
are restored, and the machine reboots once more. If the machine booted its previous system, the
config is applied again, once, and the machine reboots.

Run the command at every boot, for example from a unit with
ExecStart=/usr/local/bin/mco host confirm. It exits at once if no apply waits for its reboot.

On a node of a cluster the daemon confirms configs. machine-config-daemon-confirm.service runs this
command with --standby for the case that no daemon starts; the daemon installs the unit before it
reboots into a config, and removes the unit once the config is confirmed or rolled back.";

/// A probe of a machine without a cluster.
struct NoCluster;

impl Probe for NoCluster {
    async fn check_api_server(&self) -> CheckResult {
        CheckResult::Skipped
    }
}

pub(super) fn run(args: &ConfirmArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.machine.root)?;
    // In standby the lock is taken only before a rollback.
    let _lock = if args.standby { None } else { Some(target::lock(&host)?) };
    if let Some(minutes) = args.within {
        confirm::set_deadline(&host.root, Duration::from_secs(minutes.saturating_mul(60)))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let settled = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        if args.standby {
            telemetry::start(telemetry::Format::Text, tracing::Level::INFO)?;
            return Ok(startup::stand_by(host, &shutdown).await);
        }
        anyhow::Ok(startup::confirm_or_roll_back(host, &NoCluster, None, &shutdown).await)
    })?;
    match settled {
        Confirmation::Proceed(_) if args.standby => {
            writeln!(screen, "nothing to stand by for")?;
            Ok(ExitCode::SUCCESS)
        }
        Confirmation::Proceed(mut host) => {
            let confirmed = ledger::open(&host.root)?.filter(|(_, progress)| progress.confirmed);
            match confirmed {
                Some((update, _)) => {
                    let options = ApplyOptions { force: false, yes: true, reboot: true };
                    if let Some(code) = apply_again(options, &mut host, screen)? {
                        return Ok(code);
                    }
                    ledger::close(&host.root)?;
                    let name = update.to.metadata.name.unwrap_or_default();
                    writeln!(screen, "confirmed {name}: the machine is healthy")?;
                }
                None => writeln!(screen, "nothing to confirm")?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Confirmation::Failed(..) if args.standby => {
            Err(anyhow::anyhow!("no daemon has decided about the config; the unit starts anew"))
        }
        Confirmation::Failed(_, fault) => {
            let failed = || anyhow::anyhow!("the config could neither be kept nor rolled back");
            Err(fault.map_or_else(failed, Into::into))
        }
        Confirmation::Exit(DaemonExit::Stopped) => Ok(ExitCode::from(2)),
        Confirmation::Exit(DaemonExit::Rebooting) => {
            writeln!(screen, "rolled back the config; the machine reboots")?;
            Ok(ExitCode::from(DIFFERS))
        }
    }
}
