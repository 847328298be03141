//! `mco host apply`: applies manifests to the machine.

use std::{io::Write as _, process::ExitCode};

use mco_apply::{
    confirm,
    execute::{self, ExecuteError, Outcome},
    ledger::{self, Resume},
    observe,
};
use mco_core::plan::{Force, Step};
use mco_host::System as _;

use super::{DIFFERS, MachineArgs, REBOOT_DUE, target};
use crate::{
    error::error_with_hint,
    load::Sources,
    print::{self, Screen},
};

/// Apply manifests to this machine
#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    sources: Sources,
    /// Pool to render, if the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// Write all files again
    #[arg(long)]
    force: bool,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
    /// Reboot at the end if required
    #[arg(long)]
    reboot: bool,
}

pub(super) fn run(
    args: &ApplyArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let to = target::render(&args.sources, args.pool.as_deref(), verbose)?;
    let mut host = target::open(&args.machine.root)?;
    let _lock = target::lock(&host)?;
    let options = ApplyOptions { force: args.force, yes: args.yes, reboot: args.reboot };
    carry_out(options, &mut host, to, screen)
}

/// Options of an apply.
#[derive(Clone, Copy)]
pub(super) struct ApplyOptions {
    /// Write all files again.
    pub(super) force: bool,
    /// Skip the confirmation.
    pub(super) yes: bool,
    /// Reboot if required.
    pub(super) reboot: bool,
}

/// Applies `to` to a locked machine.
pub(super) fn carry_out(
    options: ApplyOptions,
    host: &mut target::LocalHost,
    to: target::DesiredConfig,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    if let Some(code) = resume(options, host, screen)? {
        return Ok(code);
    }
    let force = if options.force { Force::Yes } else { Force::No };
    let transition = target::plan(host, to, force)?;
    let name = transition.to.object.metadata.name.clone().unwrap_or_default();
    let Some(plan) = transition.plan else {
        writeln!(screen, "nothing to do: the machine already has {name}")?;
        return Ok(ExitCode::SUCCESS);
    };
    write!(screen, "{plan}")?;
    screen.flush()?;
    target::confirm(&format!("Apply {name}?"), options.yes)?;
    confirm::prepare(host, confirm::DEADLINE)?;
    let done = execute::begin(host, &transition.from, &transition.to, plan, &mut print_step);
    conclude(options, host, &name, done, screen)
}

/// Resumes an interrupted update; returns `None` if nothing is left to do.
pub(super) fn resume(
    options: ApplyOptions,
    host: &mut target::LocalHost,
    screen: &mut Screen<'_>,
) -> anyhow::Result<Option<ExitCode>> {
    let Some((update, progress)) = ledger::open(&host.root)? else { return Ok(None) };
    let name = update.to.metadata.name.clone().unwrap_or_default();
    let booted = host.system.facts()?.boot_id;
    let done = match ledger::resume(&progress, &update.boot_id, &booted) {
        Resume::Continue(_) => {
            print::note(&format!("resuming {name}"));
            execute::proceed(host, &update, &progress, &mut print_step)
        }
        Resume::Undo => {
            print::note(&format!("resuming the rollback of {name}"));
            execute::roll_back_failed(host, &update, &progress)
        }
        Resume::Reboot => Ok(Outcome::RebootDue),
        Resume::Verify => {
            if let Some(code) = apply_again(options, host, screen)? {
                return Ok(Some(code));
            }
            ledger::close(&host.root)?;
            writeln!(screen, "{name} is active since the reboot")?;
            return Ok(None);
        }
    };
    match done {
        Ok(Outcome::Applied) => {
            writeln!(screen, "applied {name}")?;
            Ok(None)
        }
        done => conclude(options, host, &name, done, screen).map(Some),
    }
}

/// Applies an update again after a reboot into the previous system: a staged deployment is lost with the
/// power, and a boot loader that does not read the journal of its file system reads the previous menu.
/// Returns `None` if the machine booted the new system.
pub(super) fn apply_again(
    options: ApplyOptions,
    host: &mut target::LocalHost,
    screen: &mut Screen<'_>,
) -> anyhow::Result<Option<ExitCode>> {
    let found = observe::disk_view(host)?.update.filter(|update| !update.is_booted);
    if found.is_none() || !target::is_running(host)? {
        return Ok(None);
    }
    let Some((update, progress)) = ledger::open(&host.root)? else { return Ok(None) };
    let name = update.to.metadata.name.clone().unwrap_or_default();
    if progress.again_in.is_some() {
        return Err(error_with_hint(
            format!("{name} was applied twice, and the machine booted its previous system again"),
            "check the boot loader, or run mco host rollback",
        ));
    }
    print::note(&format!("the machine booted its previous system; applying {name} again"));
    let done = execute::apply_again(host, &update, &mut print_step);
    conclude(options, host, &name, done, screen).map(Some)
}

fn conclude(
    options: ApplyOptions,
    host: &mut target::LocalHost,
    name: &str,
    done: Result<Outcome, ExecuteError>,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    match done {
        Ok(Outcome::Applied) => writeln!(screen, "applied {name}")?,
        Ok(Outcome::RebootDue) if !target::is_running(host)? => {
            ledger::close(&host.root)?;
            writeln!(screen, "applied {name}; it takes effect at the next boot")?;
        }
        Ok(Outcome::RebootDue) if options.reboot => {
            execute::reboot(host, name)?;
            writeln!(screen, "applied {name}; the machine reboots")?;
        }
        Ok(Outcome::RebootDue) => {
            writeln!(screen, "applied {name}; reboot the machine to finish")?;
            return Ok(ExitCode::from(REBOOT_DUE));
        }
        Err(ExecuteError::Undone(fault)) => return rolled_back(name, &fault, screen),
        Err(error @ (ExecuteError::Reload { .. } | ExecuteError::Restart { .. })) => {
            // A daemon would retry the service; a command rolls back.
            if let Some((update, progress)) = ledger::open(&host.root)? {
                execute::withdraw(host, &update, &progress)?;
            }
            return rolled_back(name, &error.to_string(), screen);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn rolled_back(name: &str, fault: &str, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    print::failure(&anyhow::anyhow!("{fault}"));
    writeln!(screen, "{name} was not applied: all changes were rolled back")?;
    Ok(ExitCode::from(DIFFERS))
}

fn print_step(step: &Step) {
    print::note(&step.to_string());
}
