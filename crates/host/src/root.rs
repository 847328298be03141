//! A directory tree that is written atomically and never left.
//!
//! Paths are those of the machine: `/etc/motd` means that file below the root. Links inside the
//! tree resolve as they would on the machine, with the root as `/`, so neither `..` nor an absolute
//! link leads out of it.

use std::{
    fmt,
    io::{self, Write as _},
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
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

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
    /// The file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The path, as the machine sees it.
        path: String,
        /// Why not.
        source: io::Error,
    },
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
        let parts = parts(path)?;
        let (name, directories) =
            parts.split_last().ok_or_else(|| RootError::Outside { path: path.to_owned() })?;
        self.descend(directories)
            .and_then(|directory| replace(&directory, name, bytes, mode))
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
                    directory.create_dir(part)?;
                    self.open_directory(&path)?
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

fn replace(directory: &Dir, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    directory.atomic_replace_with(name, |file| -> io::Result<()> {
        file.write_all(bytes)?;
        file.flush()?;
        file.get_mut().as_file_mut().set_permissions(Permissions::from_mode(mode & 0o7777))
    })
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
