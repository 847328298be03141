//! What is wrong with somebody's input: one value for every finding, worded once.

use std::{error::Error, fmt, sync::Arc};

pub(crate) use mco_ignition::report::{Position, Severity};

use crate::load::node::Path;

/// Where a fault stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Arc<str>,
    pub(crate) at: Option<Position>,
}

/// One thing that is wrong.
///
/// `message` and `hint` never hold what a secret says.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) severity: Severity,
    /// A fixed word in `PascalCase` that scripts may rely on.
    pub(crate) code: &'static str,
    /// `Kind/name`.
    pub(crate) object: Option<String>,
    pub(crate) path: Option<Path>,
    pub(crate) place: Option<Place>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Fault {
    pub(crate) fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message.into())
    }

    pub(crate) fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message.into())
    }

    pub(crate) fn new(severity: Severity, code: &'static str, message: String) -> Self {
        Self { severity, code, object: None, path: None, place: None, message, hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The fault as one JSON object.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let at = self.place.as_ref().and_then(|place| place.at);
        serde_json::json!({
            "severity": self.severity.to_string(),
            "code": self.code,
            "object": self.object,
            "path": self.path.as_ref().map(ToString::to_string),
            "file": self.place.as_ref().map(|place| place.file.to_string()),
            "line": at.map(|at| at.line),
            "column": at.map(|at| at.column),
            "message": self.message,
            "hint": self.hint,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match self.at {
            Some(Position { line, column }) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

/// Input that a command cannot work with: every fault, for `main` to print.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Vec<Fault>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the input has errors")
    }
}

impl Error for Refused {}

/// A failure with a piece of advice.
#[derive(Debug)]
pub(crate) struct Advice {
    message: String,
    pub(crate) hint: String,
}

impl Advice {
    pub(crate) fn error(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { message: message.into(), hint: hint.into() })
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Advice {}
