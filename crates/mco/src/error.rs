//! Errors of the commands: faults of the input, and errors with a hint.

use std::{error::Error, fmt};

use mco_core::lint::Fault;

/// The faults of an invalid input, which `main` prints.
#[derive(Debug)]
pub(crate) struct FaultsError(pub(crate) Vec<Fault>);

impl fmt::Display for FaultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the input has errors")
    }
}

impl Error for FaultsError {}

/// An error with a hint: a command to run or a setting to change.
#[derive(Debug)]
pub(crate) struct HintedError {
    message: String,
    pub(crate) hint: String,
}

/// Creates an error with a hint.
pub(crate) fn error_with_hint(
    message: impl Into<String>,
    hint: impl Into<String>,
) -> anyhow::Error {
    anyhow::Error::new(HintedError { message: message.into(), hint: hint.into() })
}

impl fmt::Display for HintedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for HintedError {}
