//! `mco host recover`: leaves an unfinished update.

use std::{io::Write as _, process::ExitCode};

use mco_apply::ledger;

use super::{
    MachineArgs,
    apply::{self, ApplyOptions},
    rollback, target,
};
use crate::{error::error_with_hint, print::Screen};

/// Leave an unfinished update: resume, undo or abandon it
#[derive(Debug, clap::Args)]
pub(super) struct RecoverArgs {
    /// Way out
    #[arg(value_enum)]
    way: Way,
    #[command(flatten)]
    machine: MachineArgs,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
    /// Reboot at the end if required
    #[arg(long)]
    reboot: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Way {
    /// Continue the update, its rollback or its reboot
    Resume,
    /// Restore everything as before the update
    Undo,
    /// Forget the update; the next apply or daemon writes its whole config. Files that only the
    /// forgotten config has stay
    Abandon,
}

pub(super) fn run(args: &RecoverArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let mut host = target::open(&args.machine.root)?;
    let _lock = target::lock(&host)?;
    match args.way {
        Way::Resume => {
            let options = ApplyOptions { force: false, yes: args.yes, reboot: args.reboot };
            if ledger::open(&host.root)?.is_none() {
                return nothing();
            }
            let code = apply::resume(options, &mut host, screen)?;
            Ok(code.unwrap_or(ExitCode::SUCCESS))
        }
        Way::Undo => match ledger::open(&host.root)? {
            None => nothing(),
            Some((update, _)) => rollback::undo(&mut host, &update, args.yes, screen),
        },
        Way::Abandon => {
            target::confirm("Forget the unfinished update?", args.yes)?;
            if !ledger::abandon(&host.root)? {
                return nothing();
            }
            writeln!(screen, "abandoned the update; write its config again:")?;
            writeln!(screen, "  mco host apply -f MANIFESTS --force, or start the daemon")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn nothing() -> anyhow::Result<ExitCode> {
    Err(error_with_hint("no unfinished update on record", "see `mco host status`"))
}
