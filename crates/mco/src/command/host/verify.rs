//! `mco host verify`: lists the differences between the machine and its config.

use std::{io::Write as _, process::ExitCode};

use mco_apply::verify;

use super::{DIFFERS, MachineArgs, target};
use crate::print::Screen;

/// List the differences between this machine and its config
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    config: target::ConfigArgs,
}

pub(super) fn run(
    args: &VerifyArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let host = target::open(&args.machine.root)?;
    let config = args.config.read(&host, verbose)?;
    let machine = target::read(&config)?;
    let drifts = verify::differences(&host, &machine)?;
    if drifts.is_empty() {
        writeln!(screen, "no differences from {}", machine.name)?;
        return Ok(ExitCode::SUCCESS);
    }
    for drift in &drifts {
        writeln!(screen, "{drift}")?;
    }
    Ok(ExitCode::from(DIFFERS))
}
