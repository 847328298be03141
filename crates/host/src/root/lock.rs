//! Locks a directory of a machine, so that only one process changes the machine at a time.

use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, flock};

use super::{Root, RootError};

/// An exclusive lock on a directory, released on drop.
#[derive(Debug)]
pub struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing would not do: a child that was just forked has a copy until it executes its program.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Root {
    /// Locks a directory, which is created if missing; returns none if another process holds the
    /// lock.
    ///
    /// The kernel releases the lock when the process ends, for whatever reason.
    pub fn lock(&self, path: &str) -> Result<Option<Lock>, RootError> {
        self.create_directory(path)?;
        let Some(directory) = self.directory(path)? else { return Ok(None) };
        let is_ours = flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        Ok(is_ours.then(|| Lock(directory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let held = root.lock("/etc/x").unwrap();
        assert!(held.is_some());
        assert!(root.lock("/etc/x").unwrap().is_none());
        drop(held);
        assert!(root.lock("/etc/x").unwrap().is_some());
    }
}
