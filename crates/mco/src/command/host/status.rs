//! `mco host status`: shows the records of the machine, and the ways out of an unfinished update.

use std::{io::Write as _, process::ExitCode};

use mco_apply::{ledger, observe};
use mco_core::lifecycle::Stage;

use super::{DIFFERS, MachineArgs, target};
use crate::print::Screen;

/// Show the config of this machine and an unfinished update
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    machine: MachineArgs,
}

const WAYS_OUT: &str = "\
ways out:
  mco host recover resume   continue the update, its rollback or its reboot
  mco host recover undo     restore everything as before the update
  mco host recover abandon  forget the update; the next apply or daemon writes its whole config";

pub(super) fn run(args: &StatusArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let mut host = target::open(&args.machine.root)?;
    let disk = observe::disk_view(&mut host)?;
    let config = disk.current.map_or_else(|| "none".to_owned(), |config| config.to_string());
    writeln!(screen, "config: {config}")?;
    if let Some(back) = &disk.rolled_back {
        writeln!(screen, "rolled back: {}: {}", back.config, back.why)?;
    }
    if disk.force {
        writeln!(screen, "force file: the next update writes everything again")?;
    }
    if let Some(why) = &disk.unreadable {
        writeln!(screen, "unfinished update: cannot be read: {why}")?;
    } else if let Some((update, progress)) = ledger::open(&host.root)? {
        let name = |config: &mco_api::MachineConfig| config.metadata.name.clone();
        let (from, to) = (name(&update.from), name(&update.to));
        let stage = match progress.stage {
            Stage::Applying => "applying",
            Stage::Rebooting => "waiting for its reboot",
            Stage::Undoing => "being rolled back",
            Stage::Returning => "rolled back, waiting for its reboot",
        };
        let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
        let steps = update.plan.steps.len();
        writeln!(screen, "unfinished update: {from} to {to}, {stage}")?;
        writeln!(screen, "steps: {} of {steps} completed", progress.done)?;
        if let Some(fault) = &progress.fault {
            writeln!(screen, "fault: {fault}")?;
        }
        let backup = ledger::pack(&host.root, &update);
        let backup = backup.map_or_else(|error| error.to_string(), |_| "complete".to_owned());
        writeln!(screen, "backup: {backup}")?;
    } else {
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(screen, "{WAYS_OUT}")?;
    Ok(ExitCode::from(DIFFERS))
}
