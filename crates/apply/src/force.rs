//! The request to write the whole config again, whatever the disk has.
//!
//! The force file is in `/run`, as in the reference, so that a reboot removes it. The request that an
//! abandoned update leaves must survive the reboot: the files are half of one config and half of the other.

use mco_host::{Root, RootError};

use crate::execute::FORCE_FILE;

/// Record of an update that was abandoned.
pub(crate) const ABANDONED: &str = "/var/lib/machine-config-daemon/mco-abandoned";

/// Records that an update is abandoned.
pub(crate) fn record_abandoned(root: &Root) -> Result<(), RootError> {
    root.write(ABANDONED, b"", 0o600)?;
    root.write(FORCE_FILE, b"", 0o600)
}

/// Returns true if the whole config is to be written again.
pub fn is_requested(root: &Root) -> Result<bool, RootError> {
    Ok(root.exists(FORCE_FILE)? || root.exists(ABANDONED)?)
}

/// Returns true if only an abandoned update asks for it, and not the administrator in this boot.
pub(crate) fn is_of_abandoned(root: &Root) -> Result<bool, RootError> {
    Ok(root.exists(ABANDONED)? && !root.exists(FORCE_FILE)?)
}

/// Removes the request.
pub fn withdraw(root: &Root) -> Result<(), RootError> {
    root.remove(FORCE_FILE)?;
    root.remove(ABANDONED)?;
    Ok(())
}
