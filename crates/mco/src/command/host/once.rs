//! `mco daemon start --once-from`: applies one config without a cluster, and exits.
//!
//! Compat: the reference's one-shot mode (`cmd/machine-config-daemon/start.go`), through `mco host
//! apply`, so that the update can be resumed and rolled back.

use std::{path::Path, process::ExitCode};

use mco_apply::{disk, execute};

use super::{
    REBOOT_DUE,
    apply::{self, ApplyOptions},
    target,
};
use crate::print::Screen;

/// Applies the config at `path` to the machine at `root`.
pub(crate) fn run(
    root: &Path,
    path: &Path,
    reboot: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let to = target::single(path)?;
    let mut host = target::open(root)?;
    let _lock = target::lock(&host)?;
    let options = ApplyOptions { force: false, yes: true, reboot: false };
    let code = apply::carry_out(options, &mut host, to, screen)?;
    let is_due = code == ExitCode::from(REBOOT_DUE);
    if code == ExitCode::SUCCESS || is_due {
        // The first boot has nothing left to complete.
        host.root.remove(disk::ENCAPSULATED)?;
    }
    if is_due && reboot {
        execute::reboot_because(&mut host, "runOnceFromIgnition complete")?;
    }
    // A caller that skips the reboot expects success.
    Ok(if is_due { ExitCode::SUCCESS } else { code })
}
