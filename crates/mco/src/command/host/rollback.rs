//! `mco host rollback`: undoes the last apply.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use mco_apply::{
    disk, execute,
    ledger::{self, Progress, Stage},
};
use mco_host::Restored;

use super::{MachineArgs, REBOOT_DUE, target};
use crate::{error::error_with_hint, print::Screen};

/// Undo the last apply
#[derive(Debug, clap::Args)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    machine: MachineArgs,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
}

pub(super) fn run(args: &RollbackArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let mut host = target::open(&args.machine.root)?;
    let _lock = target::lock(&host)?;
    if let Some((update, _)) = ledger::open(&host.root)? {
        return undo(&mut host, &update, args.yes, screen);
    }
    ask(args.yes, &last(&host)?)?;
    ledger::reopen(&host.root)?;
    finish(&mut host, screen)
}

/// Rolls back an unfinished update.
pub(super) fn undo(
    host: &mut target::LocalHost,
    update: &ledger::Ledger,
    yes: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    ask(yes, update)?;
    // Before anything is recorded: an update that cannot be rolled back may still be resumed.
    ledger::pack(&host.root, update)?;
    let (_, progress) = ledger::open(&host.root)?.context("the ledger is missing")?;
    let progress = Progress { stage: Stage::Undoing, fault: None, ..progress };
    ledger::advance(&host.root, &progress)?;
    finish(host, screen)
}

fn finish(host: &mut target::LocalHost, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let opened = ledger::open(&host.root)?;
    let (update, progress) = opened.context("the ledger that was just opened is missing")?;
    let staged = execute::roll_back(host, &update, &progress)?;
    let name = update.to.metadata.name.unwrap_or_default();
    match staged {
        Restored::Done => writeln!(screen, "rolled back {name}")?,
        Restored::NeedsReboot => {
            writeln!(screen, "rolled back {name}; reboot the machine to finish")?;
            return Ok(ExitCode::from(REBOOT_DUE));
        }
    }
    if update.plan.reboots() && target::is_running(host)? {
        writeln!(screen, "running services may still use the old config; reboot to be sure")?;
        return Ok(ExitCode::from(REBOOT_DUE));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the ledger of the last apply, provided that the config did not change since.
fn last(host: &target::LocalHost) -> anyhow::Result<ledger::Ledger> {
    let Some(update) = ledger::last_update(&host.root)? else {
        return Err(error_with_hint(
            "no apply on record",
            "apply the manifests you want with `mco host apply -f`",
        ));
    };
    let current = disk::current_config(&host.root)?;
    if current.as_ref() != Some(&update.to) {
        return Err(error_with_hint(
            "the current config is not the one of the last apply on record",
            "apply the manifests you want with `mco host apply -f`",
        ));
    }
    Ok(update)
}

fn ask(yes: bool, update: &ledger::Ledger) -> anyhow::Result<()> {
    let name = update.to.metadata.name.as_deref().unwrap_or_default();
    let paths = update.before.paths.len();
    target::confirm(&format!("Roll back {name} and restore {paths} paths?"), yes)
}
