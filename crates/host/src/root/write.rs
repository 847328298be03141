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
    process::{getegid, geteuid},
};

use super::{
    Attribute, Owner, Root, RootError,
    attribute::{self, Which},
    change::refused,
    split,
};
use crate::fault::{Injected, WRITE, crashed};

/// Longer names are cut for the temporary name: with the suffix it must fit into 255 bytes.
const MAX_STEM: usize = 200;

/// The durability of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Durable when the call returns.
    Now,
    /// Survives the process, but not a power cut soon after.
    Later,
}

/// A file to write.
struct NewFile<'a> {
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
    pub fn can_chown(&self) -> bool {
        geteuid().is_root()
    }

    /// Returns true if a file that this process creates has this owner.
    pub(crate) fn is_own(owner: Owner) -> bool {
        owner.user == geteuid().as_raw() && owner.group == getegid().as_raw()
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
        self.replace(path, &NewFile { bytes, mode, owner, attributes: None })
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
        self.replace(
            path,
            &NewFile { bytes, mode, owner: Some(owner), attributes: Some(attributes) },
        )
    }

    /// Appends to a file that only its owner can read, creating it if missing.
    pub fn append(&self, path: &str, bytes: &[u8], durable: Durable) -> Result<(), RootError> {
        let (directories, name) = split(path)?;
        let add = || -> io::Result<()> {
            let directory = self.open_or_create(&directories)?;
            let flags = OFlags::WRONLY
                | OFlags::APPEND
                | OFlags::CREATE
                | OFlags::NOFOLLOW
                | OFlags::CLOEXEC;
            self.fault_point("open", name)?;
            let file = openat(&directory, name, flags, Mode::from_raw_mode(0o600))?;
            self.write_bytes(&file, name, bytes)?;
            if durable == Durable::Now {
                self.fault_point("fsync", name)?;
                fsync(&file)?;
            }
            Ok(())
        };
        add().map_err(|source| refused(path, source))
    }

    /// Removes the temporary file or link of an interrupted write at this path; returns true if
    /// there was one.
    pub fn remove_temporary(&self, path: &str) -> Result<bool, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(false) };
        let temporary = temporary(name);
        // Checked first: unlink fails on a read-only disk even if the file does not exist.
        if statat(&directory, &temporary, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return Ok(false);
        }
        match unlinkat(&directory, temporary, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(refused(path, error.into())),
        }
    }

    fn replace(&self, path: &str, new: &NewFile<'_>) -> Result<(), RootError> {
        let (directories, name) = split(path)?;
        self.open_or_create(&directories)
            .and_then(|directory| {
                let temporary = temporary(name);
                let made = self.write_temporary(&directory, name, &temporary, new);
                self.rename_into_place(&directory, &temporary, name, made)
            })
            .map_err(|source| refused(path, source))
    }

    pub(super) fn put_link(&self, directory: &Dir, name: &str, target: &str) -> io::Result<()> {
        let temporary = temporary(name);
        let make = || -> io::Result<()> {
            self.fault_point("link", name)?;
            match symlinkat(target, directory, &temporary) {
                Err(Errno::EXIST) => {
                    unlinkat(directory, &temporary, AtFlags::empty())?;
                    Ok(symlinkat(target, directory, &temporary)?)
                }
                made => Ok(made?),
            }
        };
        self.rename_into_place(directory, &temporary, name, make())
    }

    /// Renames the temporary file into place, or removes it if its write failed.
    fn rename_into_place(
        &self,
        directory: &Dir,
        temporary: &str,
        name: &str,
        made: io::Result<()>,
    ) -> io::Result<()> {
        let renamed = made.and_then(|()| {
            self.fault_point("rename", name)?;
            Ok(renameat(directory, temporary, directory, name)?)
        });
        if let Err(error) = renamed {
            if self.fault_point("unlink", name).is_ok() {
                let _ = unlinkat(directory, temporary, AtFlags::empty());
            }
            return Err(error);
        }
        self.sync_directory(directory, name)
    }

    fn write_temporary(
        &self,
        directory: &Dir,
        name: &str,
        temporary: &str,
        new: &NewFile<'_>,
    ) -> io::Result<()> {
        let file = self.create_temporary(directory, name, temporary)?;
        self.write_bytes(&file, name, new.bytes)?;
        self.fault_point("set owner and mode of", name)?;
        if let Some(owner) = new.owner {
            chown(&file, owner)?;
        }
        // After the owner, because chown clears special bits.
        fchmod(&file, Mode::from_raw_mode(new.mode & 0o7777))?;
        match new.attributes {
            Some(attributes) => attribute::replace(&file, attributes)?,
            None => attribute::put(&file, &attribute::of(directory, name, Which::Labels)?)?,
        }
        self.fault_point("fsync", name)?;
        Ok(fsync(&file)?)
    }

    fn create_temporary(
        &self,
        directory: &Dir,
        name: &str,
        temporary: &str,
    ) -> io::Result<OwnedFd> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Readable by its owner only until it has its mode.
        let open = || openat(directory, temporary, flags, Mode::from_raw_mode(0o600));
        self.fault_point("create", name)?;
        match open() {
            // Left by a crash.
            Err(Errno::EXIST) => {
                unlinkat(directory, temporary, AtFlags::empty())?;
                Ok(open()?)
            }
            opened => Ok(opened?),
        }
    }

    fn write_bytes(&self, file: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = std::fs::File::from(file.try_clone()?);
        match self.next_fault(WRITE, name)? {
            Injected::None => file.write_all(bytes),
            Injected::TornWrite => {
                file.write_all(bytes.get(..bytes.len() / 2).unwrap_or_default())?;
                Err(crashed())
            }
        }
    }
}

/// Returns the temporary name of a file.
fn temporary(name: &str) -> String {
    let stem = name.get(..name.floor_char_boundary(MAX_STEM)).unwrap_or_default();
    format!(".{stem}.mco-new")
}

pub(super) fn chown(file: impl AsFd, owner: Owner) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
    match fchown(file, Some(user), Some(group)) {
        Err(Errno::PERM) if !geteuid().is_root() => Ok(()),
        done => Ok(done?),
    }
}
