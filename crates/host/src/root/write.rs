//! Atomic writes of files.
//!
//! The new file is written under a temporary name in the same directory, synced, and renamed over
//! the old one; the rename is durable when the call returns. The temporary name is derived from the
//! file's, so that leftovers of a crash can be found and removed.

use std::{
    io::{self, Write as _},
    os::fd::{AsFd, OwnedFd},
};

use cap_std_ext::cap_std::fs::Dir;
use rustix::{
    fs::{
        AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, fsync, openat, renameat, statat,
        symlinkat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

use super::{Attribute, Owner, Root, RootError, attribute, change::refused, split};
use crate::fault::{Ahead, WRITE, dead};

/// Longer names are cut for the temporary name: with the suffix it must fit into 255 bytes.
const LONGEST_STEM: usize = 200;

/// The durability of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Durable when the call returns.
    Now,
    /// Survives the process, but not a power cut soon after.
    Later,
}

/// A file to write.
struct New<'a> {
    bytes: &'a [u8],
    mode: u32,
    owner: Option<Owner>,
    /// Extended attributes; those of the replaced file if none.
    attributes: Option<&'a [Attribute]>,
}

impl Root {
    /// Replaces the file at `path` by `bytes` with exactly `mode`, creating its directories.
    ///
    /// A reader sees the old file or the new one, never a part. A link at `path` is replaced, not
    /// followed. The security label of the replaced file is kept.
    pub fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Result<(), RootError> {
        self.write_owned(path, bytes, mode, None)
    }

    /// Returns true if this process can change owners of files.
    #[must_use]
    pub fn gives_away(&self) -> bool {
        geteuid().is_root()
    }

    /// Like [`Root::write`]; the file has this owner before it is visible.
    ///
    /// Only root can change owners; for any other user the file belongs to the process.
    pub fn write_owned(
        &self,
        path: &str,
        bytes: &[u8],
        mode: u32,
        owner: Option<Owner>,
    ) -> Result<(), RootError> {
        self.put(path, &New { bytes, mode, owner, attributes: None })
    }

    /// Like [`Root::write_owned`], with exactly these extended attributes.
    pub fn write_labelled(
        &self,
        path: &str,
        bytes: &[u8],
        mode: u32,
        owner: Owner,
        attributes: &[Attribute],
    ) -> Result<(), RootError> {
        self.put(path, &New { bytes, mode, owner: Some(owner), attributes: Some(attributes) })
    }

    /// Appends to a file that only its owner can read, creating it if missing.
    pub fn append(&self, path: &str, bytes: &[u8], durable: Durable) -> Result<(), RootError> {
        let (directories, name) = split(path)?;
        let add = || -> io::Result<()> {
            let directory = self.descend(&directories)?;
            let flags = OFlags::WRONLY
                | OFlags::APPEND
                | OFlags::CREATE
                | OFlags::NOFOLLOW
                | OFlags::CLOEXEC;
            self.point("open", name)?;
            let file = openat(&directory, name, flags, Mode::from_raw_mode(0o600))?;
            self.fill(&file, name, bytes)?;
            if durable == Durable::Now {
                self.point("fsync", name)?;
                fsync(&file)?;
                self.settle(&directory, name)?;
            }
            Ok(())
        };
        add().map_err(|source| refused(path, source))
    }

    /// Removes the temporary file or link of an interrupted write at this path; returns true if
    /// there was one.
    pub fn sweep(&self, path: &str) -> Result<bool, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(false) };
        let beside = beside(name);
        // Checked first: unlink fails on a read-only disk even if the file does not exist.
        if statat(&directory, &beside, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return Ok(false);
        }
        match unlinkat(&directory, beside, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(refused(path, error.into())),
        }
    }

    fn put(&self, path: &str, new: &New<'_>) -> Result<(), RootError> {
        let (directories, name) = split(path)?;
        self.descend(&directories)
            .and_then(|directory| {
                let beside = beside(name);
                let made = self.make(&directory, name, &beside, new);
                self.take_name(&directory, &beside, name, made)
            })
            .map_err(|source| refused(path, source))
    }

    pub(super) fn put_link(&self, directory: &Dir, name: &str, target: &str) -> io::Result<()> {
        let beside = beside(name);
        let make = || -> io::Result<()> {
            self.point("link", name)?;
            match symlinkat(target, directory, &beside) {
                Err(Errno::EXIST) => {
                    unlinkat(directory, &beside, AtFlags::empty())?;
                    Ok(symlinkat(target, directory, &beside)?)
                }
                made => Ok(made?),
            }
        };
        self.take_name(directory, &beside, name, make())
    }

    /// Renames the temporary file into place, or removes it if its write failed.
    fn take_name(
        &self,
        directory: &Dir,
        beside: &str,
        name: &str,
        made: io::Result<()>,
    ) -> io::Result<()> {
        let renamed = made.and_then(|()| {
            self.point("rename", name)?;
            Ok(renameat(directory, beside, directory, name)?)
        });
        if let Err(error) = renamed {
            if self.point("unlink", name).is_ok() {
                let _ = unlinkat(directory, beside, AtFlags::empty());
            }
            return Err(error);
        }
        self.settle(directory, name)
    }

    fn make(&self, directory: &Dir, name: &str, beside: &str, new: &New<'_>) -> io::Result<()> {
        let file = self.create_beside(directory, name, beside)?;
        self.fill(&file, name, new.bytes)?;
        self.point("set owner and mode of", name)?;
        if let Some(owner) = new.owner {
            give(&file, owner)?;
        }
        // After the owner, because chown clears special bits.
        fchmod(&file, Mode::from_raw_mode(new.mode & 0o7777))?;
        match new.attributes {
            Some(attributes) => attribute::put(&file, attributes)?,
            None => attribute::put(&file, &attribute::of(directory, name)?)?,
        }
        self.point("fsync", name)?;
        Ok(fsync(&file)?)
    }

    fn create_beside(&self, directory: &Dir, name: &str, beside: &str) -> io::Result<OwnedFd> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Readable by its owner only until it has its mode.
        let open = || openat(directory, beside, flags, Mode::from_raw_mode(0o600));
        self.point("create", name)?;
        match open() {
            // Left by a crash.
            Err(Errno::EXIST) => {
                unlinkat(directory, beside, AtFlags::empty())?;
                Ok(open()?)
            }
            opened => Ok(opened?),
        }
    }

    fn fill(&self, file: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = std::fs::File::from(file.try_clone()?);
        match self.ahead(WRITE, name)? {
            Ahead::Whole => file.write_all(bytes),
            Ahead::Torn => {
                file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
                Err(dead())
            }
        }
    }
}

/// Returns the temporary name of a file.
fn beside(name: &str) -> String {
    let stem = name.get(..name.floor_char_boundary(LONGEST_STEM)).unwrap_or_default();
    format!(".{stem}.mco-new")
}

pub(super) fn give(file: impl AsFd, owner: Owner) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
    match fchown(file, Some(user), Some(group)) {
        Err(Errno::PERM) if !geteuid().is_root() => Ok(()),
        done => Ok(done?),
    }
}
