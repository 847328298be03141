//! What can go wrong with a lab.

use std::{
    io,
    process::{Command, Output},
};

/// Why the lab did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// This machine has not what a lab is made of.
    #[error("no lab: {0}")]
    Missing(String),
    /// A file or a process of the lab.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// A program of the lab failed.
    #[error("{what} failed: {said}")]
    Command {
        /// What it was to do.
        what: String,
        /// Its last words.
        said: String,
    },
    /// Something did not happen in time.
    #[error("waited {seconds} s in vain for {step}\nseen instead: {seen}\n{logs}")]
    Late {
        /// What was waited for; names the machine.
        step: String,
        /// How long.
        seconds: u64,
        /// What was there at the end.
        seen: String,
        /// What may explain it.
        logs: String,
    },
}

/// Turns the error of a system call into one that says what was tried.
pub(super) fn trying(what: impl Into<String>) -> impl FnOnce(io::Error) -> LabError {
    let what = what.into();
    move |source| LabError::Io { what, source }
}

/// Runs a program to its end and returns what it wrote.
pub(super) fn run(what: &str, command: &mut Command) -> Result<String, LabError> {
    said(what, &output(what, command)?)
}

/// Runs a program to its end, however it ends.
pub(super) fn output(what: &str, command: &mut Command) -> Result<Output, LabError> {
    command.output().map_err(trying(what))
}

/// What a program wrote, if it succeeded.
pub(super) fn said(what: &str, output: &Output) -> Result<String, LabError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said = format!("{} {}{}", output.status, err.trim(), out.trim());
    Err(LabError::Command { what: what.to_owned(), said })
}
