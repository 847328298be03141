//! A fault of a manifest, with its location, message and hint.

use std::{fmt, sync::Arc};

use super::{FieldPath, Position, Severity};

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Name of the file.
    pub file: Arc<str>,
    /// Line and column, if known.
    pub at: Option<Position>,
}

/// A fault of a manifest.
///
/// `message` and `hint` never contain the text of a secret.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Error or warning.
    pub severity: Severity,
    /// A fixed word in `PascalCase` that scripts may rely on.
    pub code: &'static str,
    /// The object, as `Kind/name`.
    pub object: Option<String>,
    /// Path of the faulty field in the object.
    pub path: Option<FieldPath>,
    /// Location of the faulty field.
    pub location: Option<Location>,
    /// Description of the fault.
    pub message: String,
    /// A command to run or a field to change.
    pub hint: Option<String>,
}

impl Fault {
    /// Creates an error.
    #[must_use]
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message.into())
    }

    /// Creates a warning.
    #[must_use]
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message.into())
    }

    /// Creates a fault without location and hint.
    #[must_use]
    pub fn new(severity: Severity, code: &'static str, message: String) -> Self {
        Self { severity, code, object: None, path: None, location: None, message, hint: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns true if the fault is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns the fault as a JSON object.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let at = self.location.as_ref().and_then(|location| location.at);
        serde_json::json!({
            "severity": self.severity.to_string(),
            "code": self.code,
            "object": self.object,
            "path": self.path.as_ref().map(ToString::to_string),
            "file": self.location.as_ref().map(|location| location.file.to_string()),
            "line": at.map(|at| at.line),
            "column": at.map(|at| at.column),
            "message": self.message,
            "hint": self.hint,
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match self.at {
            Some(Position { line, column }) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}
