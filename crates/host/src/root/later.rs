//! Many changes, one sync per directory.
//!
//! A file is on the disk when its call returns; its name is once the directory is synced. Whoever makes
//! many changes in a row can put the second off to the end, and must not say before that they are made.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use cap_std_ext::cap_std::fs::Dir;
use rustix::fs::{fstat, fsync};

use super::{Root, RootError};

/// More open directories than this are not kept.
const MOST: usize = 64;

/// Directories whose names are not on the disk yet; none while each is synced at once.
#[derive(Debug, Default)]
pub(super) struct Later(Mutex<Option<Vec<Waiting>>>);

#[derive(Debug)]
struct Waiting {
    device: u64,
    inode: u64,
    directory: Dir,
}

impl Later {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Waiting>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a directory for later; says whether it did.
    pub(super) fn keep(&self, directory: &Dir) -> io::Result<bool> {
        let mut waiting = self.lock();
        let Some(list) = waiting.as_mut() else { return Ok(false) };
        let stat = fstat(directory)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        if list.iter().any(|it| it.device == device && it.inode == inode) {
            return Ok(true);
        }
        if list.len() >= MOST {
            return Ok(false);
        }
        list.push(Waiting { device, inode, directory: directory.try_clone()? });
        Ok(true)
    }
}

impl Root {
    /// From now on names get to the disk only with [`Root::settle_all`].
    pub fn put_off(&self) {
        self.later.lock().get_or_insert_default();
    }

    /// Has all names on the disk that were put off, and puts off none from now on.
    pub fn settle_all(&self) -> Result<(), RootError> {
        let waiting = self.later.lock().take().unwrap_or_default();
        for Waiting { directory, .. } in waiting {
            let synced =
                self.point("fsync the directory of", "many").and_then(|()| Ok(fsync(&directory)?));
            synced.map_err(|source| RootError::Write { path: "/".to_owned(), source })?;
        }
        Ok(())
    }
}
