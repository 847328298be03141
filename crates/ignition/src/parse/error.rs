//! Errors of parsing documents. The texts are the reference's, because administrators search for
//! them.

use crate::report::Report;

/// A document that was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The document is empty.
    #[error("parsing Ignition config spec v3 failed with error: not a config (empty)\nReport: ")]
    Empty,
    /// The version is missing or malformed.
    #[error(
        "parsing Ignition config failed: invalid version. Supported spec versions: {SUPPORTED}"
    )]
    InvalidVersion,
    /// The version is not supported.
    #[error(
        "parsing Ignition config failed: unknown version. Supported spec versions: {SUPPORTED}"
    )]
    UnknownVersion,
    /// The document breaks the rules of the 3.x specification.
    #[error("parsing Ignition config spec v3 failed with error: config is not valid\nReport: {0}")]
    V3(Report),
    /// The document breaks the rules of the 2.x specification.
    #[error("parsing Ignition spec v2 failed with error: {reason}\nReport: {report}")]
    V2 {
        /// Summary of the error.
        reason: &'static str,
        /// Faults of the document.
        report: Report,
    },
}

/// Supported versions in error texts.
const SUPPORTED: &str = "2.2,3.0,3.1,3.2,3.3,3.4,3.5";

/// A file whose mode has bits beyond read, write and execute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid mode {} for {path}, cannot exceed 0777", octal(*mode))]
pub struct ModeError {
    /// Path of the file.
    pub path: String,
    /// Mode of the file.
    pub mode: i64,
}

/// A config that was parsed but must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The config breaks the rules of the newest version.
    #[error("invalid ignition V3 config found: {0}")]
    Invalid(Report),
    /// The mode of a file has special bits.
    #[error(transparent)]
    Mode(#[from] ModeError),
}

impl ReadError {
    /// Returns the faults of the document, if it was parsed that far.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Empty | Self::InvalidVersion | Self::UnknownVersion => None,
            Self::V3(report) | Self::V2 { report, .. } => Some(report),
        }
    }
}

/// Formats a number like Go's `%#o`.
fn octal(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}0{:o}", number.unsigned_abs())
}
