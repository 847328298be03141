//! `mco host confirm`: keeps the config that the machine has rebooted into, or takes it back.

use std::{io::Write as _, process::ExitCode, time::Duration};

use mco_cluster::{Shutdown, telemetry};
use mco_daemon::{
    Ended,
    confirm::{self, Probe, Settled, standby},
    ledger,
};
use mco_host::Answer;

use super::{DIFFERS, Place, target};
use crate::print::Screen;

/// Keep the config that this machine has rebooted into, or take it back
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(super) struct ConfirmArgs {
    #[command(flatten)]
    place: Place,
    /// Minutes that the machine has to prove healthy; 15 unless the apply said otherwise
    #[arg(long, value_name = "MINUTES")]
    within: Option<u64>,
    /// Leave it to the daemon of this node, and take the config back only if none has come up in time
    #[arg(long, conflicts_with = "within")]
    standby: bool,
}

const NOTES: &str = "\
Healthy is a machine whose kubelet answers, where it is to run one, and whose own checks pass: every
program in /etc/machine-config-daemon/checks.d must exit with 0. Whoever gave no good answer before the
apply either is not asked. A config that does not prove healthy in
time is taken back: everything is put back as it was before it, and the machine reboots once more.

Start it at every boot, say by a unit with ExecStart=/usr/local/bin/mco host confirm. Without an apply that
waits for its reboot it ends at once.

On a node that is the daemon's business. With --standby this is how machine-config-daemon-confirm.service
helps where no daemon comes up; the daemon puts that unit on the machine before it reboots into a config,
and takes it away once the config is kept or taken back.";

/// There is no cluster to ask.
struct Alone;

impl Probe for Alone {
    async fn cluster(&self) -> Answer {
        Answer::NotAsked
    }
}

pub(super) fn run(args: &ConfirmArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.place.root)?;
    // A standby takes it only when it is about to act.
    let _lock = if args.standby { None } else { Some(target::lock(&host)?) };
    if let Some(minutes) = args.within {
        confirm::set_deadline(&host.root, Duration::from_secs(minutes.saturating_mul(60)))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let settled = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        if args.standby {
            telemetry::start(telemetry::Format::Text, tracing::Level::INFO)?;
            return Ok(standby::stand_by(host, &shutdown).await);
        }
        anyhow::Ok(confirm::settle(host, &Alone, &shutdown).await)
    })?;
    match settled {
        Settled::Go(_) if args.standby => {
            writeln!(screen, "nothing is left to stand by for")?;
            Ok(ExitCode::SUCCESS)
        }
        Settled::Go(host) => {
            let confirmed = ledger::open(&host.root)?.filter(|(_, progress)| progress.confirmed);
            match confirmed {
                Some((update, _)) => {
                    ledger::close(&host.root)?;
                    let name = update.to.metadata.name.unwrap_or_default();
                    writeln!(screen, "{name} is kept: the machine is healthy")?;
                }
                None => writeln!(screen, "nothing waits to be confirmed")?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Settled::Ended(Ended::Stopped) => Ok(ExitCode::from(2)),
        Settled::Ended(Ended::Rebooting) => {
            writeln!(screen, "the config was taken back; the machine reboots")?;
            Ok(ExitCode::from(DIFFERS))
        }
    }
}
