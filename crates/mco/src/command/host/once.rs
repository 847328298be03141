//! `mco daemon start --once-from`: one config, applied without a cluster, and nothing after it.
//!
//! Compat: the reference's one-shot mode (`cmd/machine-config-daemon/start.go`), by way of `mco host apply`, so that
//! it can be resumed and taken back.

use std::{path::Path, process::ExitCode};

use mco_daemon::{disk, execute};

use super::{
    REBOOT_DUE,
    apply::{self, Manner},
    target,
};
use crate::print::Screen;

/// Makes the machine below `root` what the config at `path` says.
pub(crate) fn run(
    root: &Path,
    path: &Path,
    reboot: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let to = target::single(path)?;
    let mut host = target::open(root)?;
    let _lock = target::lock(&host)?;
    let manner = Manner { force: false, yes: true, reboot: false };
    let code = apply::carry_out(manner, &mut host, to, screen)?;
    let is_due = code == ExitCode::from(REBOOT_DUE);
    if code == ExitCode::SUCCESS || is_due {
        // What first boot would complete is complete.
        host.root.remove(disk::ENCAPSULATED)?;
    }
    if is_due && reboot {
        execute::reboot_because(&mut host, "runOnceFromIgnition complete")?;
    }
    // Whoever left the reboot to themselves asked for no more than this.
    Ok(if is_due { ExitCode::SUCCESS } else { code })
}
