//! Originals: the files that the operating system had at a path before a config replaced them.
//!
//! The first config that writes a path keeps either a copy of the system's file, or a stamp that
//! says that there was none. The last config that releases the path restores the copy, or removes
//! the file.
//!
//! Compat: paths and names are the reference's (`pkg/daemon/file_writers.go`).

use crate::root::{Root, RootError};

const COPIES: &str = "/etc/machine-config-daemon/orig";
const STAMPS: &str = "/etc/machine-config-daemon/noorig";

/// The origin of the file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// The operating system ships it.
    Yes,
    /// The operating system does not ship it, or there is none.
    No,
}

/// The result of releasing a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The original is restored.
    Restored,
    /// There is no original.
    Nothing,
}

/// Returns the path of the copy of the original.
#[must_use]
pub fn copy_path(path: &str) -> String {
    format!("{COPIES}{path}.mcdorig")
}

/// Returns the path of the stamp that says that there is no original.
#[must_use]
pub fn stamp_path(path: &str) -> String {
    format!("{STAMPS}{path}.mcdnoorig")
}

/// Keeps the file at `source` as the original of `path`, unless that was decided before.
pub fn keep(root: &Root, path: &str, source: &str, shipped: Shipped) -> Result<(), RootError> {
    let (copy, stamp) = (copy_path(path), stamp_path(path));
    match shipped {
        Shipped::Yes if root.stat(&copy)?.is_some() => Ok(()),
        Shipped::Yes => {
            root.copy(source, &copy)?;
            // Must be durable before the path itself changes, because it cannot be read again then.
            root.sync_deferred()
        }
        Shipped::No if root.exists(&stamp)? => Ok(()),
        Shipped::No => {
            root.remove(&copy)?;
            root.write(&stamp, b"", 0o644)
        }
    }
}

/// Restores the original of `path`; a copy of a file that the system does not ship is dropped.
pub fn release(root: &Root, path: &str, shipped: Shipped) -> Result<Released, RootError> {
    let copy = copy_path(path);
    if root.remove(&stamp_path(path))? || root.stat(&copy)?.is_none() {
        return Ok(Released::Nothing);
    }
    match shipped {
        Shipped::Yes => {
            root.copy(&copy, path)?;
            root.remove(&copy)?;
            Ok(Released::Restored)
        }
        Shipped::No => {
            root.remove(&copy)?;
            Ok(Released::Nothing)
        }
    }
}
