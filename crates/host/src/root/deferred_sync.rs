//! Defers the syncs of directories, so that many changes share one sync per directory.
//!
//! The contents of a file are durable when its call returns; its name is once the directory is
//! synced. A caller with many changes in a row can defer the second to the end, and must not record
//! the changes as done before.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{fstat, fsync};

use super::{Root, RootError};

/// Limit of open directories; further ones are synced at once.
const MAX_OPEN_DIRECTORIES: usize = 64;

/// Directories to sync later; none while each is synced at once.
#[derive(Debug, Default)]
pub(super) struct DeferredSyncs(Mutex<Option<Vec<PendingDirectory>>>);

#[derive(Debug)]
struct PendingDirectory {
    device: u64,
    inode: u64,
    directory: Dir,
}

impl DeferredSyncs {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<PendingDirectory>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Defers the sync of a directory; returns false if it must be synced at once.
    pub(super) fn defer(&self, directory: &Dir) -> io::Result<bool> {
        let mut waiting = self.lock();
        let Some(list) = waiting.as_mut() else { return Ok(false) };
        let stat = fstat(directory)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        if list.iter().any(|it| it.device == device && it.inode == inode) {
            return Ok(true);
        }
        if list.len() >= MAX_OPEN_DIRECTORIES {
            return Ok(false);
        }
        list.push(PendingDirectory { device, inode, directory: directory.try_clone()? });
        Ok(true)
    }
}

impl Root {
    /// Defers syncs of directories until [`Root::sync_deferred`].
    pub fn defer_syncs(&self) {
        self.deferred.lock().get_or_insert_default();
    }

    /// Syncs all deferred directories, and ends the deferral.
    pub fn sync_deferred(&self) -> Result<(), RootError> {
        let waiting = self.deferred.lock().take().unwrap_or_default();
        for PendingDirectory { directory, .. } in waiting {
            let synced = self
                .fault_point("fsync the directory of", "many")
                .and_then(|()| Ok(fsync(&directory)?));
            synced.map_err(|source| RootError::Write { path: "/".to_owned(), source })?;
        }
        Ok(())
    }
}
