//! Links, removal, copies and permissions. Each change is durable when the call returns.

use std::io;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fsync, openat, renameat, unlinkat};

use super::{Owner, Root, RootError, split, write::chown};

impl Root {
    /// Removes a file or link; returns false if there is none.
    pub fn remove(&self, path: &str) -> Result<bool, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(false) };
        if self.stat(path)?.is_none() {
            return Ok(false);
        }
        self.fault_point("unlink", name).map_err(|error| refused(path, error))?;
        match unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            Err(error) => return Err(refused(path, error.into())),
        }
        self.sync_directory(&directory, name).map_err(|error| refused(path, error))?;
        Ok(true)
    }

    /// Removes a directory if it is empty; returns true if it is gone.
    pub fn remove_empty_directory(&self, path: &str) -> Result<bool, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(true) };
        self.fault_point("rmdir", name).map_err(|error| refused(path, error))?;
        match unlinkat(&directory, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(true),
            Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(refused(path, error.into())),
        }
    }

    /// Removes a directory that contains nothing but directories; returns false if it contains
    /// anything else, and then removes nothing.
    pub fn remove_directories(&self, path: &str) -> Result<bool, RootError> {
        let mut found = vec![path.to_owned()];
        let mut seen = 0;
        while let Some(folder) = found.get(seen).cloned() {
            seen += 1;
            for name in self.list(&folder)? {
                let child = format!("{folder}/{name}");
                if !self.stat(&child)?.is_some_and(|stat| stat.is_directory()) {
                    return Ok(false);
                }
                found.push(child);
            }
        }
        for folder in found.iter().rev() {
            if !self.remove_empty_directory(folder)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes a directory and everything in it; links in it are not followed.
    pub fn remove_tree(&self, path: &str) -> Result<(), RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(()) };
        self.fault_point("remove all of", name).map_err(|error| refused(path, error))?;
        match directory.remove_dir_all(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(|error| refused(path, error))?,
        }
        self.sync_directory(&directory, name).map_err(|error| refused(path, error))
    }

    /// Writes a link to `target` at `path`, replacing a file or link there.
    pub fn link(&self, target: &str, path: &str) -> Result<(), RootError> {
        if self.read_link(path)?.as_deref() == Some(target) {
            return Ok(());
        }
        let (directories, name) = split(path)?;
        let refuse = |source| refused(path, source);
        let directory = self.open_or_create(&directories).map_err(refuse)?;
        self.put_link(&directory, name, target).map_err(refuse)
    }

    /// Renames a file inside the tree.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), RootError> {
        let (directory, name) = self.parent(from)?;
        let refuse = |source| refused(from, source);
        let directory = directory.ok_or_else(|| refuse(io::ErrorKind::NotFound.into()))?;
        let (directories, new) = split(to)?;
        let target = self.open_or_create(&directories).map_err(refuse)?;
        self.fault_point("rename", name).map_err(refuse)?;
        renameat(&directory, name, &target, new).map_err(|error| refuse(error.into()))?;
        for (changed, name) in [(&target, new), (&directory, name)] {
            self.sync_directory(changed, name).map_err(refuse)?;
        }
        Ok(())
    }

    /// Sets the permissions of a file or directory; returns false if there is none.
    pub fn set_mode(&self, path: &str, mode: u32) -> Result<bool, RootError> {
        self.with_open(path, |file| {
            fchmod(file, Mode::from_raw_mode(mode & 0o7777)).map_err(io::Error::from)
        })
    }

    /// Changes the owner of a file or directory; returns false if there is none.
    pub fn set_owner(&self, path: &str, owner: Owner) -> Result<bool, RootError> {
        self.with_open(path, |file| chown(file, owner))
    }

    /// Copies a file or link with permissions and owner; returns false if there is none.
    pub fn copy(&self, from: &str, to: &str) -> Result<bool, RootError> {
        let Some(stat) = self.stat(from)? else { return Ok(false) };
        if let Some(target) = self.read_link(from)? {
            self.link(&target, to)?;
            return Ok(true);
        }
        let bytes = self.read(from)?.unwrap_or_default();
        self.write_labelled(to, &bytes, stat.mode, stat.owner, &self.attributes(from)?)?;
        Ok(true)
    }

    /// Makes a file or directory durable that another program wrote; returns false if there is none.
    pub fn sync(&self, path: &str) -> Result<bool, RootError> {
        self.with_open(path, |_| Ok(()))
    }

    /// Makes the names in a directory durable that another program changed. Does nothing if there is no
    /// directory.
    pub(crate) fn sync_names(&self, path: &str) -> Result<(), RootError> {
        let Some(directory) = self.directory(path)? else { return Ok(()) };
        let name = path.rsplit('/').next().unwrap_or(path);
        let synced =
            self.fault_point("fsync the directory of", name).and_then(|()| Ok(fsync(&directory)?));
        synced.map_err(|source| refused(path, source))
    }

    pub(super) fn with_open(
        &self,
        path: &str,
        change: impl FnOnce(&std::os::fd::OwnedFd) -> io::Result<()>,
    ) -> Result<bool, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(false) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(&directory, name, flags, Mode::empty()) {
            Ok(file) => self
                .fault_point("set owner or mode of", name)
                .and_then(|()| change(&file))
                .and_then(|()| Ok(fsync(&file)?))
                .map(|()| true)
                .map_err(|source| refused(path, source)),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(refused(path, error.into())),
        }
    }
}

pub(super) fn refused(path: &str, source: io::Error) -> RootError {
    RootError::Write { path: path.to_owned(), source }
}
