//! Integration tests of the API crate.

// `cfg(test)` tells clippy that these modules are tests.
#[cfg(test)]
mod generated;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod round_trip;

use std::path::{Path, PathBuf};

/// Returns the root directory of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a file; returns `None` if it does not exist.
#[expect(clippy::disallowed_methods, reason = "tests read fixtures from disk")]
fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}
