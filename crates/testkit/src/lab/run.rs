//! Programs of the host that the lab is made with.

use std::process::{Command, Output};

use anyhow::{Context as _, bail};

/// Runs a program to its end and returns what it wrote.
pub(super) fn run(what: &str, command: &mut Command) -> anyhow::Result<String> {
    said(what, &output(what, command)?)
}

/// Runs a program to its end, however it ends.
pub(super) fn output(what: &str, command: &mut Command) -> anyhow::Result<Output> {
    command.output().with_context(|| format!("cannot start {what}"))
}

/// What a program wrote, if it succeeded.
pub(super) fn said(what: &str, output: &Output) -> anyhow::Result<String> {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{what} failed: {}: {}{}", output.status, err.trim(), out.trim());
    }
    Ok(out.into_owned())
}
