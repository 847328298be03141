//! `mco host forget`: removes the records of this program from a machine.

use std::{io::Write as _, process::ExitCode};

use mco_apply::forget::{self, ForgetError, Unfinished};

use super::{MachineArgs, target};
use crate::{error::error_with_hint, print::Screen};

/// Remove the records of mco from this machine; the files and units of MachineConfigs stay
#[derive(Debug, clap::Args)]
pub(super) struct ForgetArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
    /// Forget an unfinished update, too: it is neither completed nor rolled back
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &ForgetArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let mut host = target::open(&args.machine.root)?;
    let _lock = target::lock(&host)?;
    target::confirm(
        "Remove the records of mco, the backups of replaced files among them?",
        args.yes,
    )?;
    let unfinished = if args.force { Unfinished::Forget } else { Unfinished::Refuse };
    let removed = forget::forget(&mut host, unfinished).map_err(|error| {
        if matches!(error, ForgetError::Unfinished) {
            let hint =
                "leave it with `mco host recover resume` or `undo`, or forget it with --force";
            return error_with_hint(error.to_string(), hint);
        }
        error.into()
    })?;
    for path in &removed {
        writeln!(screen, "{path} removed")?;
    }
    if removed.is_empty() {
        writeln!(screen, "nothing to remove: the machine has no record of mco")?;
    }
    Ok(ExitCode::SUCCESS)
}
