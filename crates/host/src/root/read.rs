//! Looking at the tree. What is not there is no error.

use std::{
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use cap_std_ext::cap_std::fs::Dir;
use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat},
    io::Errno,
};

use super::{Owner, Root, RootError, parts, split};

/// Larger files than any config can hold are not read.
const LIMIT: u64 = 256 << 20;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Kind and permissions, as the kernel tells them.
    pub mode: u32,
    /// Who it belongs to.
    pub owner: Owner,
}

impl Stat {
    /// Whether it is a plain file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Whether it is a link.
    #[must_use]
    pub fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// Whether it is a socket.
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.mode & 0o170_000 == 0o140_000
    }
}

impl Root {
    /// The bytes of a file, through links inside the tree.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>, RootError> {
        split(path)?;
        absent_is_none(path, self.read_bytes(path))
    }

    /// What the path itself is; a link at its end is not followed.
    pub fn stat(&self, path: &str) -> Result<Option<Stat>, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(None) };
        let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|found| Stat {
            mode: found.st_mode,
            owner: Owner { user: found.st_uid, group: found.st_gid },
        });
        absent_is_none(path, stat.map_err(io::Error::from))
    }

    /// Whether the path leads to something, through links inside the tree.
    pub fn exists(&self, path: &str) -> Result<bool, RootError> {
        parts(path)?;
        let opened = self.open_path(path, OFlags::PATH);
        absent_is_none(path, opened).map(|found| found.is_some())
    }

    /// Where a link points; none for anything else.
    pub fn read_link(&self, path: &str) -> Result<Option<String>, RootError> {
        let (directory, name) = self.parent(path)?;
        let Some(directory) = directory else { return Ok(None) };
        match readlinkat(&directory, name, Vec::new()) {
            Ok(target) => Ok(Some(target.to_string_lossy().into_owned())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(error) => Err(refused(path, error.into())),
        }
    }

    /// Where a path leads in the end; none if there is nothing at it.
    ///
    /// The end need not be there, so that a link to `/dev/null` is known in a tree without devices.
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

    /// The names in a directory, sorted; none if it is not there.
    pub fn list(&self, path: &str) -> Result<Vec<String>, RootError> {
        let relative: PathBuf = parts(path)?.into_iter().collect();
        let relative = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative };
        let names = |directory: Dir| -> io::Result<Vec<String>> {
            let entries = directory.entries()?;
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        let found = match self.open_directory(&relative).and_then(names) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
            listed => absent_is_none(path, listed),
        };
        let mut found = found?.unwrap_or_default();
        found.sort();
        Ok(found)
    }

    /// A handle on a directory, through links inside the tree; none if it is not there.
    pub fn directory(&self, path: &str) -> Result<Option<OwnedFd>, RootError> {
        let relative: PathBuf = parts(path)?.into_iter().collect();
        let relative = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative };
        match self.open_directory(&relative) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(None),
            opened => Ok(absent_is_none(path, opened)?.map(|dir| dir.into_std_file().into())),
        }
    }

    /// The directory of a path, if it is there, and the last name.
    pub(super) fn parent<'p>(&self, path: &'p str) -> Result<(Option<Dir>, &'p str), RootError> {
        let (directories, name) = split(path)?;
        let mut relative: PathBuf = directories.into_iter().collect();
        if relative.as_os_str().is_empty() {
            relative.push(".");
        }
        let directory = match self.open_directory(&relative) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => None,
            opened => absent_is_none(path, opened)?,
        };
        Ok((directory, name))
    }

    fn read_bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        // Non-blocking, for a pipe in place of the file would never answer.
        let file = self.open_path(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a plain file"));
        }
        let mut bytes = Vec::new();
        if file.take(LIMIT + 1).read_to_end(&mut bytes)? as u64 > LIMIT {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
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

/// Where a link at `link` leads, as text.
fn joined(link: &str, target: &str) -> String {
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
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(refused(path, source)),
    }
}

pub(super) fn refused(path: &str, source: io::Error) -> RootError {
    RootError::Read { path: path.to_owned(), source }
}
