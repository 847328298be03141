//! Runs programs of the host for a machine.

use std::process::Command;

use anyhow::{Context as _, bail};

/// Runs a program and returns its standard output. Fails if its exit code is not one of `accepted`.
pub(super) fn run(what: &str, command: &mut Command, accepted: &[i32]) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("failed to start {what}"))?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.code().is_some_and(|code| accepted.contains(&code)) {
        bail!("{what} failed: {}: {}{}", output.status, err.trim(), out.trim());
    }
    Ok(out.into_owned())
}
