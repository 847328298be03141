//! A directory tree that is written atomically and never left.
//!
//! Paths are those of the machine: `/etc/motd` means that file below the root. Links inside the
//! tree resolve as they would on the machine, with the root as `/`, so neither `..` nor an absolute
//! link leads out of it.

mod attribute;
mod change;
mod deferred_sync;
mod lock;
mod read;
mod write;

use std::{
    fmt, io,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use cap_std_ext::cap_std::{ambient_authority, fs::Dir};
use rustix::{
    fs::{Mode, OFlags, ResolveFlags, fsync, openat2},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use self::deferred_sync::DeferredSyncs;
pub(crate) use self::read::{Location, joined};
pub use self::{
    attribute::Attribute,
    lock::Lock,
    read::{FileVersion, Stat},
    write::Durable,
};
use crate::fault::{Faults, Injected};

/// A failed access to the tree.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The root itself cannot be opened.
    #[error("failed to open directory {path}")]
    Open {
        /// The root.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The path does not name a file below the root.
    #[error("{path:?} does not name a file below the root")]
    Outside {
        /// The path as given.
        path: String,
    },
    /// The path cannot be read.
    #[error("failed to read {path}")]
    Read {
        /// The path, as the machine sees it.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("failed to write {path}")]
    Write {
        /// The path, as the machine sees it.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
}

impl RootError {
    /// Returns true if links lead to one another without an end.
    pub(crate) fn is_link_loop(&self) -> bool {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => {
                source.raw_os_error() == Some(Errno::LOOP.raw_os_error())
            }
            Self::Open { .. } | Self::Outside { .. } => false,
        }
    }
}

/// The owner of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// A directory tree that stands for a machine's `/`.
pub struct Root {
    dir: Dir,
    faults: Option<Arc<Faults>>,
    deferred: DeferredSyncs,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").finish_non_exhaustive()
    }
}

impl Root {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        // Readable, because a directory opened with `O_PATH` cannot be synced.
        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY;
        rustix::fs::open(path, flags, Mode::empty())
            .map(|fd| Self {
                dir: Dir::from_std_file(fd.into()),
                faults: None,
                deferred: DeferredSyncs::default(),
            })
            .map_err(io::Error::from)
            .map_err(|source| RootError::Open { path: path.to_owned(), source })
    }

    /// Injects faults into changes of the tree, for tests; clones share them.
    #[must_use]
    pub fn with_faults(self, faults: Arc<Faults>) -> Self {
        Self { faults: Some(faults), ..self }
    }

    /// Returns a second handle on the same tree.
    pub fn try_clone(&self) -> Result<Self, RootError> {
        let dir = self.dir.try_clone();
        dir.map(|dir| Self { dir, faults: self.faults.clone(), deferred: DeferredSyncs::default() })
            .map_err(|source| RootError::Open { path: PathBuf::from("/"), source })
    }

    /// Opens a directory, creating it and its parents if missing.
    pub fn create(path: &Path) -> Result<Self, RootError> {
        Dir::create_ambient_dir_all(path, ambient_authority())
            .map_err(|source| RootError::Open { path: path.to_owned(), source })?;
        Self::open(path)
    }

    /// Creates the directory at `path` and its parents if missing.
    pub fn create_directory(&self, path: &str) -> Result<(), RootError> {
        let parts = parts(path)?;
        self.open_or_create(&parts)
            .map(drop)
            .map_err(|source| RootError::Write { path: path.to_owned(), source })
    }

    fn open_or_create(&self, parts: &[&str]) -> io::Result<Dir> {
        let mut directory = self.dir.try_clone()?;
        let mut path = PathBuf::new();
        for part in parts {
            path.push(part);
            directory = match self.open_directory(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.fault_point("mkdir", part)?;
                    match directory.create_dir(part) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(error);
                        }
                        _ => {
                            self.sync_directory(&directory, part)?;
                            self.open_directory(&path)?
                        }
                    }
                }
                opened => opened?,
            };
        }
        Ok(directory)
    }

    /// Marks a change that is about to happen; an injected fault fails it.
    fn fault_point(&self, what: &str, name: &str) -> io::Result<()> {
        self.next_fault(what, name).map(drop)
    }

    fn next_fault(&self, what: &str, name: &str) -> io::Result<Injected> {
        self.faults.as_ref().map_or(Ok(Injected::None), |faults| faults.check(what, name))
    }

    /// Syncs a directory, so that changed names in it are durable; deferred if the caller asked for
    /// it.
    fn sync_directory(&self, directory: &Dir, name: &str) -> io::Result<()> {
        if self.deferred.defer(directory)? {
            return Ok(());
        }
        self.fault_point("fsync the directory of", name)?;
        Ok(fsync(directory)?)
    }

    fn open_directory(&self, path: &Path) -> io::Result<Dir> {
        loop {
            let opened = openat2(
                &self.dir,
                path,
                OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY,
                Mode::empty(),
                ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
            );
            match opened {
                Ok(fd) => return Ok(Dir::from_std_file(fd.into())),
                // The kernel asks for a retry when the tree changed during the lookup.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Splits a path into its directories and the last name.
fn split(path: &str) -> Result<(Vec<&str>, &str), RootError> {
    let mut parts = parts(path)?;
    let name = parts.pop().ok_or_else(|| RootError::Outside { path: path.to_owned() })?;
    Ok((parts, name))
}

/// Splits a path into names; `..` is refused rather than resolved, because no config means it.
fn parts(path: &str) -> Result<Vec<&str>, RootError> {
    let outside = || RootError::Outside { path: path.to_owned() };
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => parts.push(name.to_str().ok_or_else(outside)?),
            Component::ParentDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    if path.ends_with('/') || path.contains('\0') { Err(outside()) } else { Ok(parts) }
}

#[cfg(test)]
mod tests;
