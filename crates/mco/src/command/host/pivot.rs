//! `mco host pivot`: stages an OS image regardless of the config.

use std::{io::Write as _, process::ExitCode};

use mco_apply::execute;
use mco_host::System as _;

use super::{MachineArgs, REBOOT_DUE, target};
use crate::{error::error_with_hint, print::Screen};

/// Stage an OS image for the next boot, regardless of the config
#[derive(Debug, clap::Args)]
pub(super) struct PivotArgs {
    /// Image to boot, preferably by digest
    image: String,
    #[command(flatten)]
    machine: MachineArgs,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
    /// Reboot at the end
    #[arg(long)]
    reboot: bool,
}

/// Stage an OS image for the next boot, regardless of the config; as `mco host pivot --yes`
///
/// Compat: the emergency command of older releases, `machine-config-daemon pivot IMAGE`.
#[derive(Debug, clap::Args)]
pub(crate) struct DaemonPivotArgs {
    /// Image to boot, preferably by digest
    image: String,
    #[command(flatten)]
    machine: MachineArgs,
    /// Reboot at the end
    #[arg(long, short)]
    reboot: bool,
    /// Accepted for compatibility, without effect: no container image is kept
    #[arg(long, short, hide = true)]
    keep: bool,
}

/// Stages the image without a confirmation, because the command of older releases asks for none.
pub(crate) fn run_for_daemon(
    args: &DaemonPivotArgs,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    stage(&args.image, &args.machine, true, args.reboot, screen)
}

pub(super) fn run(args: &PivotArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    stage(&args.image, &args.machine, args.yes, args.reboot, screen)
}

fn stage(
    name: &str,
    machine: &MachineArgs,
    yes: bool,
    reboot: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let image = name.trim();
    if image.is_empty() || image.starts_with('-') || image.contains(char::is_whitespace) {
        return Err(error_with_hint(
            format!("invalid image {name:?}"),
            "use HOST/NAME@sha256:DIGEST; the daemon's log contains the image it needs",
        ));
    }
    let mut host = target::open(&machine.root)?;
    let booted = host.system.facts()?.booted_image.unwrap_or_default();
    if booted == image {
        writeln!(screen, "nothing to do: the machine already booted {image}")?;
        return Ok(ExitCode::SUCCESS);
    }
    target::confirm(&format!("Boot {image} instead of {booted}?"), yes)?;
    host.system.stage_os(image)?;
    if reboot {
        execute::reboot_because(&mut host, &format!("mco host pivot to {image}"))?;
        writeln!(screen, "staged {image}; the machine reboots")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(screen, "staged {image}; reboot the machine to finish")?;
    Ok(ExitCode::from(REBOOT_DUE))
}
