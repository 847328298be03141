//! `mco host verify`: every difference between the machine and its config.

use std::{io::Write as _, process::ExitCode};

use mco_daemon::verify;

use super::{DIFFERS, Place, target};
use crate::print::Screen;

/// List every difference between this machine and its config
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    given: target::Given,
}

pub(super) fn run(
    args: &VerifyArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.place.root)?;
    let config = args.given.config(&host, verbose)?;
    let machine = target::read(&config)?;
    let drifts = verify::all(&host, &machine)?;
    if drifts.is_empty() {
        writeln!(screen, "the machine is as {} says", machine.name)?;
        return Ok(ExitCode::SUCCESS);
    }
    for drift in &drifts {
        writeln!(screen, "{drift}")?;
    }
    Ok(ExitCode::from(DIFFERS))
}
