//! Reads the tree. A missing path is no error.

use std::{
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use cap_std_ext::cap_std::fs::Dir;
use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, statat},
    io::Errno,
};

use super::{Owner, Root, RootError, parts, split};

/// Larger files are not read; no config can hold them.
const MAX_FILE_SIZE: u64 = 256 << 20;

/// Number of links that the kernel follows.
const MAX_LINKS: usize = 40;

/// The type, permissions and owner of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner of the path.
    pub owner: Owner,
}

impl Stat {
    /// Returns true for a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Returns true for a symbolic link.
    #[must_use]
    pub(crate) fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }

    /// Returns true for a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// Returns true for a socket.
    #[must_use]
    pub(crate) fn is_socket(&self) -> bool {
        self.mode & 0o170_000 == 0o140_000
    }
}

/// The place of a file, the same for every path that leads to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Device and inode of the nearest directory that exists.
    directory: (u64, u64),
    /// Rest of the path.
    below: String,
}

/// The identity of a path and the time of its last change, including changes of its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    inode: i128,
    changed: (i128, i128),
}

impl Root {
    /// Returns the version of the path itself; a link at its end is not followed.
    pub fn version(&self, path: &str) -> Result<Option<FileVersion>, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(None) };
        let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|it| FileVersion {
            inode: i128::from(it.st_ino),
            changed: (i128::from(it.st_ctime), i128::from(it.st_ctime_nsec)),
        });
        absent_is_none(path, found.map_err(io::Error::from))
    }

    /// Reads a file, following links inside the tree.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>, RootError> {
        split(path)?;
        absent_is_none(path, self.read_bytes(path))
    }

    /// Returns the type of the path itself; a link at its end is not followed.
    pub fn stat(&self, path: &str) -> Result<Option<Stat>, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(None) };
        let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|found| Stat {
            mode: found.st_mode,
            owner: Owner { user: found.st_uid, group: found.st_gid },
        });
        absent_is_none(path, stat.map_err(io::Error::from))
    }

    /// Returns true if the path leads to something, following links inside the tree.
    pub fn exists(&self, path: &str) -> Result<bool, RootError> {
        parts(path)?;
        let opened = self.open_path(path, OFlags::PATH);
        absent_is_none(path, opened).map(|found| found.is_some())
    }

    /// Returns the target of a link; none for anything else.
    pub fn read_link(&self, path: &str) -> Result<Option<String>, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(None) };
        match readlinkat(&directory, name, Vec::new()) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(refused(path, error.into())),
        }
    }

    /// Follows the links at a path to their end; returns none if the path does not exist.
    ///
    /// The end need not exist, so that a link to `/dev/null` is recognized in a tree without
    /// devices.
    pub fn destination(&self, path: &str) -> Result<Option<String>, RootError> {
        if self.stat(path)?.is_none() {
            return Ok(None);
        }
        let mut at = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(target) = self.read_link(&at)? else { return Ok(Some(at)) };
            at = joined(&at, &target);
        }
        Err(refused(path, Errno::LOOP.into()))
    }

    /// Lists the names in a directory, sorted; empty if it does not exist.
    pub fn list(&self, path: &str) -> Result<Vec<String>, RootError> {
        let relative: PathBuf = parts(path)?.into_iter().collect();
        let relative = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative };
        let names = |directory: Dir| -> io::Result<Vec<String>> {
            let entries = directory.entries()?;
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        let listed = self.open_directory(&relative).and_then(names);
        let mut found = absent_is_none(path, listed)?.unwrap_or_default();
        found.sort();
        Ok(found)
    }

    /// Opens a directory, following links inside the tree; none if it does not exist.
    pub fn directory(&self, path: &str) -> Result<Option<OwnedFd>, RootError> {
        let relative: PathBuf = parts(path)?.into_iter().collect();
        let relative = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative };
        let opened = absent_is_none(path, self.open_directory(&relative))?;
        Ok(opened.map(|directory| directory.into_std_file().into()))
    }

    /// Returns the place of a path, which need not exist: links in its directories are followed, and one
    /// at its end is not.
    pub(crate) fn location(&self, path: &str) -> Result<Location, RootError> {
        let (directories, name) = split(path)?;
        for existing in (0..=directories.len()).rev() {
            let (above, missing) = directories.split_at(existing);
            let above = if above.is_empty() { "/.".to_owned() } else { above.join("/") };
            let Some(directory) = self.directory(&above)? else { continue };
            let found = fstat(&directory).map_err(|error| refused(path, error.into()))?;
            let below = [missing, &[name]].concat().join("/");
            return Ok(Location { directory: (found.st_dev, found.st_ino), below });
        }
        Err(RootError::Outside { path: path.to_owned() })
    }

    /// Opens the parent directory of a path, if it exists; also returns the last name.
    pub(super) fn parent<'p>(&self, path: &'p str) -> Result<(Option<Dir>, &'p str), RootError> {
        let (directories, name) = split(path)?;
        let mut relative: PathBuf = directories.into_iter().collect();
        if relative.as_os_str().is_empty() {
            relative.push(".");
        }
        Ok((absent_is_none(path, self.open_directory(&relative))?, name))
    }

    fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        // Non-blocking, because opening a pipe would block for ever.
        let file = self.open_path(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        if file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes)? as u64 > MAX_FILE_SIZE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "file is too large"));
        }
        Ok(bytes)
    }

    fn open_path(&self, path: &str, flags: OFlags) -> io::Result<std::fs::File> {
        let relative = path.trim_start_matches('/');
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(&self.dir, relative, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Ok(fd) => return Ok(fd.into()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Resolves the target of a link at `link`, as text.
pub(crate) fn joined(link: &str, target: &str) -> String {
    let start = if target.starts_with('/') {
        PathBuf::new()
    } else {
        Path::new(link).parent().map(Path::to_owned).unwrap_or_default()
    };
    let mut names: Vec<String> = Vec::new();
    for component in start.join(target).components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => {
                names.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    format!("/{}", names.join("/"))
}

fn absent_is_none<T>(path: &str, found: io::Result<T>) -> Result<Option<T>, RootError> {
    match found {
        Ok(found) => Ok(Some(found)),
        // Below a file there is nothing either.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(source) => Err(refused(path, source)),
    }
}

pub(super) fn refused(path: &str, source: io::Error) -> RootError {
    RootError::Read { path: path.to_owned(), source }
}
