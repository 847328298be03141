//! `mco host pivot`: has the machine boot an OS image, whatever its config says.

use std::{io::Write as _, process::ExitCode};

use mco_daemon::execute;
use mco_host::System as _;

use super::{Place, REBOOT_DUE, target};
use crate::{fault::Advice, print::Screen};

/// Have this machine boot an OS image next, whatever its config says
#[derive(Debug, clap::Args)]
pub(super) struct PivotArgs {
    /// Image to boot, best by its digest
    image: String,
    #[command(flatten)]
    place: Place,
    /// Go ahead without asking
    #[arg(long, short)]
    yes: bool,
    /// Reboot at the end
    #[arg(long)]
    reboot: bool,
}

pub(super) fn run(args: &PivotArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let image = args.image.trim();
    if image.is_empty() || image.starts_with('-') || image.contains(char::is_whitespace) {
        return Err(Advice::error(
            format!("{:?} is no image", args.image),
            "name it as HOST/NAME@sha256:DIGEST; the daemon's log has the one that it wants",
        ));
    }
    let mut host = target::open(&args.place.root)?;
    let booted = host.system.facts()?.booted_image.unwrap_or_default();
    if booted == image {
        writeln!(screen, "nothing to do: the machine has booted {image}")?;
        return Ok(ExitCode::SUCCESS);
    }
    target::confirm(&format!("Boot {image} in place of {booted}?"), args.yes)?;
    host.system.stage_os(image)?;
    if args.reboot {
        execute::reboot_because(&mut host, &format!("mco host pivot to {image}"))?;
        writeln!(screen, "staged {image}; the machine reboots")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(screen, "staged {image}; reboot the machine to finish")?;
    Ok(ExitCode::from(REBOOT_DUE))
}
