//! The directory that `mco up` lives in, and the lock that keeps it to one process.
//!
//! The lock is on a file and goes with the process, so that a kill leaves nothing to clean up. The
//! file says which process has it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mco_host::Root;
use rustix::process::{Pid, Signal};

use crate::fault::Advice;

const LOCK: &str = "lock";
const NODES: &str = "nodes";
const SERVER: &str = "server";

/// Everything of ours in the directory, for taking it away again; the lock comes last.
const ENTRIES: [&str; 8] =
    ["state.redb", "kubeconfig", "token", "ca.key", "ca.crt", SERVER, NODES, LOCK];

/// The directory, while this process has it to itself.
#[derive(Debug)]
pub(crate) struct Place {
    dir: PathBuf,
    /// Unlocked by the system when it is closed, however this process ends.
    _lock: File,
}

impl Place {
    /// Makes the directory where it is missing and takes the lock.
    pub(crate) fn take(dir: &Path) -> anyhow::Result<Self> {
        Root::create(dir)?;
        let path = dir.join(LOCK);
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut lock = open.with_context(|| format!("cannot open {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder =
                    holder(&mut lock)?.map(|pid| format!(" (process {})", pid.as_raw_nonzero()));
                return Err(Advice::error(
                    format!(
                        "mco up runs on {} already{}",
                        dir.display(),
                        holder.unwrap_or_default()
                    ),
                    "`mco status` shows it and `mco down` stops it; --dir DIR starts another",
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        lock.set_len(0)?;
        lock.rewind()?;
        writeln!(lock, "{}", std::process::id())?;
        let dir = std::path::absolute(dir)?;
        Ok(Self { dir, _lock: lock })
    }

    /// The directory, where the API server keeps its state and the kubeconfig.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the config server keeps its keys.
    pub(crate) fn server(&self) -> PathBuf {
        self.dir.join(SERVER)
    }

    /// The root directory of a node.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.dir.join(NODES).join(name)
    }
}

/// What `mco up` does in a directory.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It was never there.
    Absent,
    /// It is not running; the file is locked by us as long as this lives.
    Stopped(File),
    /// It runs.
    Running {
        /// Locked by the other process.
        lock: File,
        /// The other process; none while it has only just begun.
        process: Option<Pid>,
    },
}

impl Standing {
    /// Looks.
    pub(crate) fn of(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(LOCK);
        let mut lock = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Absent),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot open {}", path.display()));
            }
        };
        match lock.try_lock() {
            Ok(()) => Ok(Self::Stopped(lock)),
            Err(TryLockError::WouldBlock) => {
                let process = holder(&mut lock)?;
                Ok(Self::Running { lock, process })
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }
}

/// Asks a process to stop as a person would with Ctrl-C.
pub(crate) fn stop(process: Pid) -> io::Result<()> {
    match rustix::process::kill_process(process, Signal::TERM) {
        // It was quicker than we were.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes away everything that `mco up` made in the directory, and the directory if that was all.
#[expect(clippy::disallowed_methods, reason = "this is the directory of the command itself")]
pub(crate) fn purge(dir: &Path) -> io::Result<()> {
    for entry in ENTRIES {
        let path = dir.join(entry);
        let removed = match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&path),
            Ok(_) => std::fs::remove_file(&path),
            Err(error) => Err(error),
        };
        ignore(removed, &[io::ErrorKind::NotFound])?;
    }
    ignore(std::fs::remove_dir(dir), &[io::ErrorKind::NotFound, io::ErrorKind::DirectoryNotEmpty])
}

fn ignore(done: io::Result<()>, kinds: &[io::ErrorKind]) -> io::Result<()> {
    match done {
        Err(error) if kinds.contains(&error.kind()) => Ok(()),
        done => done,
    }
}

fn holder(lock: &mut File) -> io::Result<Option<Pid>> {
    let mut text = String::new();
    lock.take(32).read_to_string(&mut text)?;
    Ok(text.trim().parse().ok().and_then(Pid::from_raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/.mco");
        assert!(matches!(Standing::of(&dir).unwrap(), Standing::Absent));
        let place = Place::take(&dir).unwrap();
        let second = Place::take(&dir).unwrap_err().to_string();
        assert!(second.contains(&format!("(process {})", std::process::id())), "{second}");
        assert!(matches!(Standing::of(&dir).unwrap(), Standing::Running { process: Some(_), .. }));
        drop(place);
        assert!(matches!(Standing::of(&dir).unwrap(), Standing::Stopped(_)));
        Place::take(&dir).unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes the files it is about")]
    fn only_our_own_things_are_purged() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("d");
        std::fs::create_dir_all(dir.join("nodes/worker-0/etc")).unwrap();
        std::fs::write(dir.join("lock"), "").unwrap();
        std::fs::write(dir.join("mine"), "keep").unwrap();
        purge(&dir).unwrap();
        assert!(dir.join("mine").exists() && !dir.join("nodes").exists());
        std::fs::remove_file(dir.join("mine")).unwrap();
        purge(&dir).unwrap();
        assert!(!dir.exists());
    }
}
