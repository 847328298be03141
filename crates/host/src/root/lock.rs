//! One at a time: whoever changes a machine holds a lock on a folder of it.

use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, flock};

use super::{Root, RootError};

/// A folder that nobody else changes for as long as this lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, never read")] OwnedFd);

impl Root {
    /// Locks a folder, which is made where it is missing; none if somebody else has it.
    ///
    /// The kernel lets go of it when the process ends, however that happens.
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
    fn one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let held = root.lock("/etc/x").unwrap();
        assert!(held.is_some());
        assert!(root.lock("/etc/x").unwrap().is_none());
        drop(held);
        assert!(root.lock("/etc/x").unwrap().is_some());
    }
}
