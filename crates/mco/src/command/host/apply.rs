//! `mco host apply`: makes the machine what the manifests say.

use std::{io::Write as _, process::ExitCode};

use mco_core::plan::{Force, Step};
use mco_daemon::{
    confirm,
    execute::{self, ExecuteError, Outcome},
    ledger::{self, Resume},
};
use mco_host::System as _;

use super::{DIFFERS, Place, REBOOT_DUE, target};
use crate::{
    load::Sources,
    print::{self, Screen},
};

/// Make this machine what the manifests say
#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    sources: Sources,
    /// Pool to render, where the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// Write everything again, whatever the machine has
    #[arg(long)]
    force: bool,
    /// Go ahead without asking
    #[arg(long, short)]
    yes: bool,
    /// Reboot at the end if the change needs it
    #[arg(long)]
    reboot: bool,
}

pub(super) fn run(
    args: &ApplyArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let to = target::render(&args.sources, args.pool.as_deref(), verbose)?;
    let mut host = target::open(&args.place.root)?;
    let _lock = target::lock(&host)?;
    let manner = Manner { force: args.force, yes: args.yes, reboot: args.reboot };
    carry_out(manner, &mut host, to, screen)
}

/// How people want it.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// Whatever the machine has.
    pub(super) force: bool,
    /// Nobody is asked.
    pub(super) yes: bool,
    /// Reboot if the change needs it.
    pub(super) reboot: bool,
}

/// Makes a machine that nobody else changes what `to` says.
pub(super) fn carry_out(
    args: Manner,
    host: &mut target::Lone,
    to: target::Target,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    if let Some(code) = resume(args, host, screen)? {
        return Ok(code);
    }
    let force = if args.force { Force::Yes } else { Force::No };
    let way = target::way(host, to, force)?;
    let name = way.to.metadata.name.clone().unwrap_or_default();
    let Some(plan) = way.plan else {
        writeln!(screen, "nothing to do: the machine has {name}")?;
        return Ok(ExitCode::SUCCESS);
    };
    write!(screen, "{plan}")?;
    screen.flush()?;
    target::confirm(&format!("Apply {name}?"), args.yes)?;
    confirm::prepare(host, confirm::DEADLINE)?;
    let done = execute::begin(host, &way.from, &way.to, plan, &mut told);
    conclude(args, host, &name, done, screen)
}

/// Goes on with what was begun before; none if nothing of it is left to do.
fn resume(
    args: Manner,
    host: &mut target::Lone,
    screen: &mut Screen<'_>,
) -> anyhow::Result<Option<ExitCode>> {
    let Some((update, progress)) = ledger::open(&host.root)? else { return Ok(None) };
    let name = update.to.metadata.name.clone().unwrap_or_default();
    let booted = host.system.facts()?.boot_id;
    let done = match ledger::resume(&progress, &update.boot_id, &booted) {
        Resume::Continue(done) => {
            print::note(&format!("going on with {name}, which was begun before"));
            execute::proceed(host, &update, done, &mut told)
        }
        Resume::Undo => {
            print::note(&format!("going on with undoing {name}"));
            execute::undo(host, &update, &progress)
        }
        Resume::Reboot => Ok(Outcome::RebootDue),
        Resume::Verify => {
            ledger::close(&host.root)?;
            writeln!(screen, "{name} is in force since the reboot")?;
            return Ok(None);
        }
    };
    match done {
        Ok(Outcome::Applied) => {
            writeln!(screen, "applied {name}")?;
            Ok(None)
        }
        done => conclude(args, host, &name, done, screen).map(Some),
    }
}

fn conclude(
    args: Manner,
    host: &mut target::Lone,
    name: &str,
    done: Result<Outcome, ExecuteError>,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    match done {
        Ok(Outcome::Applied) => writeln!(screen, "applied {name}")?,
        Ok(Outcome::RebootDue) if !target::is_running(host)? => {
            ledger::close(&host.root)?;
            writeln!(screen, "applied {name}; it counts from the machine's next boot")?;
        }
        Ok(Outcome::RebootDue) if args.reboot => {
            execute::reboot(host, name)?;
            writeln!(screen, "applied {name}; the machine reboots")?;
        }
        Ok(Outcome::RebootDue) => {
            writeln!(screen, "applied {name}; reboot the machine to finish")?;
            return Ok(ExitCode::from(REBOOT_DUE));
        }
        Err(ExecuteError::Undone(fault)) => {
            print::failure(&anyhow::anyhow!("{fault}"));
            writeln!(screen, "{name} was not applied: everything is as it was before")?;
            return Ok(ExitCode::from(DIFFERS));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn told(step: &Step) {
    print::note(&step.to_string());
}
