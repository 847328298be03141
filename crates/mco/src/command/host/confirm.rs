//! `mco host confirm`: keeps the config that the machine has rebooted into, or takes it back.

use std::{io::Write as _, process::ExitCode, time::Duration};

use mco_cluster::Shutdown;
use mco_daemon::{
    Ended,
    confirm::{self, Probe, Settled},
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
    /// Minutes that the machine has to prove healthy
    #[arg(long, default_value_t = 15, value_name = "MINUTES")]
    within: u64,
}

const NOTES: &str = "\
Healthy is a machine whose kubelet answers, where it is to run one, and whose own checks pass: every
program in /etc/machine-config-daemon/checks.d must exit with 0. Whoever gave no good answer before the
apply either is not asked. A config that does not prove healthy in
time is taken back: everything is put back as it was before it, and the machine reboots once more.

Start it at every boot, say by a unit with ExecStart=/usr/local/bin/mco host confirm. Without an apply that
waits for its reboot it ends at once.";

/// There is no cluster to ask.
struct Alone;

impl Probe for Alone {
    async fn cluster(&self) -> Answer {
        Answer::NotAsked
    }
}

pub(super) fn run(args: &ConfirmArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.place.root)?;
    let _lock = target::lock(&host)?;
    confirm::set_deadline(&host.root, Duration::from_secs(args.within.saturating_mul(60)))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let settled = runtime.block_on(async {
        let shutdown = Shutdown::on_signals()?;
        anyhow::Ok(confirm::settle(host, &Alone, &shutdown).await)
    })?;
    match settled {
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
