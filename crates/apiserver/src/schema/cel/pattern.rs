//! Regular expressions whose cost is known.

use std::sync::Arc;

use ::cel::ExecutionError;
use regex::{Regex, RegexBuilder};

/// Sizes of compiled patterns in bytes, the cost of compiling one of at most this size, and the
/// factor by which matching costs more than with a small one.
const SIZES: [(usize, u64, u64); 3] =
    [(16 << 10, 100, 1), (256 << 10, 2_000, 8), (10 << 20, 100_000, 400)];

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    regex: Arc<Regex>,
    factor: u64,
}

impl Pattern {
    /// Compiles a pattern. The cost is charged before the work.
    pub(super) fn compile(
        text: &str,
        charge: impl Fn(u64) -> Result<(), ExecutionError>,
    ) -> Result<Self, ExecutionError> {
        let mut why = String::new();
        for (size, cost, factor) in SIZES {
            charge(cost)?;
            match RegexBuilder::new(text).size_limit(size).build() {
                Ok(regex) => return Ok(Self { regex: Arc::new(regex), factor }),
                Err(error @ regex::Error::CompiledTooBig(_)) => why = error.to_string(),
                Err(error) => {
                    why = error.to_string();
                    break;
                }
            }
        }
        let why = format!("'{text}' not a valid regex:\n{why}");
        Err(ExecutionError::function_error("matches", why))
    }

    /// Returns the factor of the cost of matching.
    pub(super) fn factor(&self) -> u64 {
        self.factor
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}
