//! Why documents are refused. The texts are the reference's, because people search for them.

use crate::report::Report;

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is nothing to read.
    #[error("parsing Ignition config spec v3 failed with error: not a config (empty)\nReport: ")]
    Empty,
    /// The version is missing, or is no version.
    #[error(
        "parsing Ignition config failed: invalid version. Supported spec versions: {SUPPORTED}"
    )]
    InvalidVersion,
    /// The version is none of those supported.
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
        /// What is wrong in general.
        reason: &'static str,
        /// What is wrong in detail.
        report: Report,
    },
}

/// The versions that error texts promise.
const SUPPORTED: &str = "2.2,3.0,3.1,3.2,3.3,3.4,3.5";

/// A file whose permissions go beyond read, write and execute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid mode {} for {path}, cannot exceed 0777", octal(*mode))]
pub struct ModeError {
    /// The file.
    pub path: String,
    /// Its mode.
    pub mode: i64,
}

/// Why a config that could be read must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It breaks the rules of the newest version.
    #[error("invalid ignition V3 config found: {0}")]
    Invalid(Report),
    /// The mode of a file has special bits.
    #[error(transparent)]
    Mode(#[from] ModeError),
}

impl ReadError {
    /// The faults found, if it came to that.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Empty | Self::InvalidVersion | Self::UnknownVersion => None,
            Self::V3(report) | Self::V2 { report, .. } => Some(report),
        }
    }
}

/// A number as Go's `%#o` has it.
fn octal(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}0{:o}", number.unsigned_abs())
}
