//! What was wrong with a document: all faults, each with its place.

use std::fmt;

use crate::json::Value;

/// How bad a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The document is usable; the author may have meant something else.
    Warning,
    /// The document is refused.
    Error,
}

/// One step into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A member of an object.
    Member(&'static str),
    /// An element of a list.
    Index(usize),
    /// A member that the specification does not know.
    Unknown(String),
}

/// Where in a document a fault stands, from the root down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(pub Vec<Step>);

/// A place in the source text, both counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in bytes.
    pub column: usize,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How bad it is.
    pub severity: Severity,
    /// Where it stands.
    pub path: Path,
    /// Where that is in the source text, when there is one.
    pub position: Option<Position>,
    /// What is wrong.
    pub message: String,
}

/// Every fault of one document, in document order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The faults.
    pub faults: Vec<Fault>,
}

impl Path {
    /// This path with one member more.
    #[must_use]
    pub fn member(&self, name: &'static str) -> Self {
        self.with(Step::Member(name))
    }

    /// This path with one index more.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    /// This path with a member more that the specification does not know.
    #[must_use]
    pub(crate) fn unknown(&self, name: &str) -> Self {
        self.with(Step::Unknown(name.to_owned()))
    }

    /// Whether this path starts with these members.
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

    /// Adds a fault that does not.
    pub fn warning(&mut self, path: Path, message: impl Into<String>) {
        self.push(Severity::Warning, path, message.into());
    }

    /// Adds the fault that `found` stands where `wanted`, which has its article, belongs.
    pub(crate) fn mismatch(&mut self, path: Path, wanted: &str, found: &Value<'_>) {
        self.error(path, format!("{wanted} is needed here, not {}", found.kind()));
    }

    fn push(&mut self, severity: Severity, path: Path, message: String) {
        self.faults.push(Fault { severity, path, position: None, message });
    }

    /// Adds the faults of `other`.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.faults.extend(other.faults);
    }

    /// Whether the document must be refused.
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
