//! What the operating system had at a path before a config took it over.
//!
//! The first config that writes a path leaves either a copy of what the system shipped there, or a
//! stamp that says there was nothing worth keeping. The last config that lets go of the path puts
//! the copy back, or removes the file.
//!
//! Compat: places and names are the reference's (`pkg/daemon/file_writers.go`).

use crate::root::{Root, RootError};

const COPIES: &str = "/etc/machine-config-daemon/orig";
const STAMPS: &str = "/etc/machine-config-daemon/noorig";

/// Whether the operating system shipped what is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shipped {
    /// It did.
    Yes,
    /// It did not, or there is nothing.
    No,
}

/// What became of a path that no config wants any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// What was there before is back.
    Restored,
    /// There is nothing to put back.
    Nothing,
}

/// Where the copy of what was at `path` is kept.
#[must_use]
pub fn copy_path(path: &str) -> String {
    format!("{COPIES}{path}.mcdorig")
}

/// Where the stamp is that nothing worth keeping was at `path`.
#[must_use]
pub fn stamp_path(path: &str) -> String {
    format!("{STAMPS}{path}.mcdnoorig")
}

/// Keeps what is at `source` as the original of `path`, unless that was settled before.
pub fn keep(root: &Root, path: &str, source: &str, shipped: Shipped) -> Result<(), RootError> {
    let (copy, stamp) = (copy_path(path), stamp_path(path));
    match shipped {
        Shipped::Yes if root.stat(&copy)?.is_some() => Ok(()),
        Shipped::Yes => {
            root.copy(source, &copy)?;
            // It must not be lost once the path itself has changed: no second look would bring it back.
            root.settle_all()
        }
        Shipped::No if root.exists(&stamp)? => Ok(()),
        Shipped::No => {
            root.remove(&copy)?;
            root.write(&stamp, b"", 0o644)
        }
    }
}

/// Puts back what was at `path`; a copy of what the system does not ship is dropped.
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
