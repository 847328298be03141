//! A directory tree that is written atomically and never left.
//!
//! Paths are those of the machine: `/etc/motd` means that file below the root. Links inside the
//! tree resolve as they would on the machine, with the root as `/`, so neither `..` nor an absolute
//! link leads out of it.

mod change;
mod read;

use std::{
    fmt,
    io::{self, Write as _},
    os::fd::AsFd,
    path::{Component, Path, PathBuf},
};

use cap_std_ext::{
    cap_std::{
        ambient_authority,
        fs::{Dir, Permissions, PermissionsExt as _},
    },
    dirext::CapStdExtDirExt as _,
};
use rustix::{
    fs::{Gid, Mode, OFlags, ResolveFlags, Uid, fchown, openat2},
    io::Errno,
    process::geteuid,
};

pub use self::read::Stat;

/// Why a change to the tree failed.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The root itself cannot be opened.
    #[error("cannot open directory {path}")]
    Open {
        /// The root.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The path does not name a file below the root.
    #[error("{path:?} does not name a file below the root")]
    Outside {
        /// The path as given.
        path: String,
    },
    /// The path cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The path, as the machine sees it.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The path, as the machine sees it.
        path: String,
        /// Why not.
        source: io::Error,
    },
}

/// Who a file belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

/// A directory tree that stands for a machine's `/`.
pub struct Root {
    dir: Dir,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").finish_non_exhaustive()
    }
}

impl Root {
    /// Opens an existing directory.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        Dir::open_ambient_dir(path, ambient_authority())
            .map(|dir| Self { dir })
            .map_err(|source| RootError::Open { path: path.to_owned(), source })
    }

    /// A second handle on the same tree.
    pub fn try_clone(&self) -> Result<Self, RootError> {
        let dir = self.dir.try_clone();
        dir.map(|dir| Self { dir })
            .map_err(|source| RootError::Open { path: PathBuf::from("/"), source })
    }

    /// Opens a directory, making it and its parents first where they are missing.
    pub fn create(path: &Path) -> Result<Self, RootError> {
        Dir::create_ambient_dir_all(path, ambient_authority())
            .map_err(|source| RootError::Open { path: path.to_owned(), source })?;
        Self::open(path)
    }

    /// Replaces the file at `path` by `bytes` with exactly `mode`, making its directories first.
    ///
    /// A reader sees the old file or the new one, never a part. A link at `path` is replaced, not
    /// followed.
    pub fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Result<(), RootError> {
        self.write_owned(path, bytes, mode, None)
    }

    /// As [`Root::write`], with the file in these hands before anybody can see it.
    ///
    /// Only the superuser can give files away; for anybody else the owner stays who writes.
    pub fn write_owned(
        &self,
        path: &str,
        bytes: &[u8],
        mode: u32,
        owner: Option<Owner>,
    ) -> Result<(), RootError> {
        let (directories, name) = split(path)?;
        self.descend(&directories)
            .and_then(|directory| replace(&directory, name, bytes, mode, owner))
            .map_err(|source| RootError::Write { path: path.to_owned(), source })
    }

    /// Makes the directory at `path` and its parents where they are missing.
    pub fn create_directory(&self, path: &str) -> Result<(), RootError> {
        let parts = parts(path)?;
        self.descend(&parts)
            .map(drop)
            .map_err(|source| RootError::Write { path: path.to_owned(), source })
    }

    fn descend(&self, parts: &[&str]) -> io::Result<Dir> {
        let mut directory = self.dir.try_clone()?;
        let mut path = PathBuf::new();
        for part in parts {
            path.push(part);
            directory = match self.open_directory(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match directory.create_dir(part) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                            return Err(error);
                        }
                        _ => self.open_directory(&path)?,
                    }
                }
                opened => opened?,
            };
        }
        Ok(directory)
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
                // The kernel asks for another try when the tree moved under its feet.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn replace(
    directory: &Dir,
    name: &str,
    bytes: &[u8],
    mode: u32,
    owner: Option<Owner>,
) -> io::Result<()> {
    directory.atomic_replace_with(name, |file| -> io::Result<()> {
        file.write_all(bytes)?;
        file.flush()?;
        let file = file.get_mut().as_file_mut();
        if let Some(owner) = owner {
            give(&*file, owner)?;
        }
        // After the owner, for a change of owner takes special bits away.
        file.set_permissions(Permissions::from_mode(mode & 0o7777))
    })
}

fn give(file: impl AsFd, owner: Owner) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
    match fchown(file, Some(user), Some(group)) {
        Err(Errno::PERM) if !geteuid().is_root() => Ok(()),
        done => Ok(done?),
    }
}

/// The directories along a path, and the last name.
fn split(path: &str) -> Result<(Vec<&str>, &str), RootError> {
    let mut parts = parts(path)?;
    let name = parts.pop().ok_or_else(|| RootError::Outside { path: path.to_owned() })?;
    Ok((parts, name))
}

/// The names along a path; `..` is refused rather than resolved, for no config means it.
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
