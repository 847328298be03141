//! `mco host rollback`: puts back what was there before the last apply.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use mco_daemon::{
    disk, execute,
    ledger::{self, Progress, Stage},
};
use mco_host::Staged;

use super::{Place, REBOOT_DUE, target};
use crate::{fault::Advice, print::Screen};

/// Put back what was there before the last apply
#[derive(Debug, clap::Args)]
pub(super) struct RollbackArgs {
    #[command(flatten)]
    place: Place,
    /// Go ahead without asking
    #[arg(long, short)]
    yes: bool,
}

pub(super) fn run(args: &RollbackArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let mut host = target::open(&args.place.root)?;
    let _lock = target::lock(&host)?;
    if let Some((update, progress)) = ledger::open(&host.root)? {
        ask(args, &update)?;
        let progress = Progress { stage: Stage::Undoing, fault: None, ..progress };
        ledger::advance(&host.root, &progress)?;
    } else {
        ask(args, &last(&host)?)?;
        ledger::reopen(&host.root)?;
    }
    let (update, progress) = ledger::open(&host.root)?.context("it was just opened")?;
    let staged = execute::put_back(&mut host, &update, &progress)?;
    let name = update.to.metadata.name.unwrap_or_default();
    match staged {
        Staged::Back => writeln!(screen, "{name} is taken back: everything is as before it")?,
        Staged::AtNextBoot => {
            writeln!(screen, "{name} is taken back; reboot the machine to finish")?;
            return Ok(ExitCode::from(REBOOT_DUE));
        }
    }
    if update.plan.reboots() && target::is_running(&host)? {
        writeln!(screen, "services may still run with what they read; reboot to be sure")?;
        return Ok(ExitCode::from(REBOOT_DUE));
    }
    Ok(ExitCode::SUCCESS)
}

/// The last apply, provided that nobody changed the config since.
fn last(host: &target::Lone) -> anyhow::Result<ledger::Ledger> {
    let Some(update) = ledger::last(&host.root)? else {
        return Err(Advice::error(
            "there is no apply on record that could be taken back",
            "apply the manifests that you want",
        ));
    };
    let current = disk::current_config(&host.root)?;
    if current.as_ref() != Some(&update.to) {
        return Err(Advice::error(
            "the config of this machine is not the one of the last apply on record",
            "apply the manifests that you want",
        ));
    }
    Ok(update)
}

fn ask(args: &RollbackArgs, update: &ledger::Ledger) -> anyhow::Result<()> {
    let name = update.to.metadata.name.as_deref().unwrap_or_default();
    let paths = update.before.paths.len();
    target::confirm(&format!("Take back {name} and put back {paths} paths?"), args.yes)
}
