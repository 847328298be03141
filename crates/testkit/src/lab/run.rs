//! Runs programs of the host for the lab.

use std::process::{Command, Output};

use anyhow::{Context as _, bail};

/// Runs a program and returns its output. Fails if the program fails.
pub(super) fn run(what: &str, command: &mut Command) -> anyhow::Result<String> {
    stdout(what, &output(what, command)?)
}

/// Runs a program. A failure of the program is not an error.
pub(super) fn output(what: &str, command: &mut Command) -> anyhow::Result<Output> {
    command.output().with_context(|| format!("failed to start {what}"))
}

/// Returns the standard output of a program, or an error if the program failed.
pub(super) fn stdout(what: &str, output: &Output) -> anyhow::Result<String> {
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{what} failed: {}: {}{}", output.status, err.trim(), out.trim());
    }
    Ok(out.into_owned())
}
