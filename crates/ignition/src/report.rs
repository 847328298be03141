//! Faults of a document, each with its path and position.

use std::fmt;

use crate::json::Value;

/// Severity of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The document is usable, but may not have the intended meaning.
    Warning,
    /// The document is rejected.
    Error,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A member of an object.
    Member(&'static str),
    /// An element of a list.
    Index(usize),
    /// A member that is not in the specification.
    Unknown(String),
}

/// Path of a fault in a document, starting at the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(pub Vec<Step>);

/// A position in the source text; line and column start at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line number.
    pub line: usize,
    /// Column, in bytes.
    pub column: usize,
}

/// A fault of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Severity of the fault.
    pub severity: Severity,
    /// Path of the fault.
    pub path: Path,
    /// Position of the fault in the source text, if known.
    pub position: Option<Position>,
    /// Description of the fault.
    pub message: String,
}

/// All faults of a document, in document order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The faults.
    pub faults: Vec<Fault>,
}

impl Path {
    /// Returns this path extended by a member.
    #[must_use]
    pub fn member(&self, name: &'static str) -> Self {
        self.with(Step::Member(name))
    }

    /// Returns this path extended by an index.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    /// Returns this path extended by a member that is not in the specification.
    #[must_use]
    pub(crate) fn unknown(&self, name: &str) -> Self {
        self.with(Step::Unknown(name.to_owned()))
    }

    /// Returns true if this path starts with these members.
    pub(crate) fn is_under(&self, members: &[&'static str]) -> bool {
        let start = self.0.iter().take(members.len()).cloned();
        start.eq(members.iter().map(|name| Step::Member(name)))
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl Report {
    /// Adds a fault that makes the document unusable.
    pub fn error(&mut self, path: Path, message: impl Into<String>) {
        self.push(Severity::Error, path, message.into());
    }

    /// Adds a fault that leaves the document usable.
    pub fn warning(&mut self, path: Path, message: impl Into<String>) {
        self.push(Severity::Warning, path, message.into());
    }

    /// Adds the fault that `found` has another type than `wanted`, which includes an article.
    pub(crate) fn mismatch(&mut self, path: Path, wanted: &str, found: &Value<'_>) {
        self.error(path, format!("{wanted} is needed here, not {}", found.kind()));
    }

    fn push(&mut self, severity: Severity, path: Path, message: String) {
        self.faults.push(Fault { severity, path, position: None, message });
    }

    /// Adds the faults of `other`.
    pub(crate) fn extend(&mut self, other: Self) {
        self.faults.extend(other.faults);
    }

    /// Returns true if the document must be rejected.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.faults.iter().any(|fault| fault.severity == Severity::Error)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in &self.0 {
            match step {
                Step::Member(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, ".{index}")?,
                Step::Unknown(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} col {}", self.line, self.column)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.severity)?;
        match (self.path.0.as_slice(), self.position) {
            ([], None) => {}
            ([], Some(position)) => write!(f, " at {position}")?,
            (_, None) => write!(f, " at {}", self.path)?,
            (_, Some(position)) => write!(f, " at {}, {position}", self.path)?,
        }
        write!(f, ": {}", self.message)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        Ok(())
    }
}
