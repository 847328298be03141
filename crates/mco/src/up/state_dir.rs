//! The state directory of `mco up`, and the lock that reserves the directory for one process.
//!
//! The kernel releases the file lock when the process ends, so that a kill leaves nothing to clean
//! up. The lock file contains the process id of the holder.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mco_apply::disk;
use mco_host::Root;
use rustix::process::{Pid, Signal};

use crate::{
    error::error_with_hint,
    remote::{DEFAULT_DIR, NODES},
};

const LOCK: &str = "lock";
const SERVER: &str = "server";

/// Directory with the logs of the components, if each is a process of its own.
pub(crate) const LOGS: &str = "logs";

/// Database of the embedded API server.
const DATABASE: &str = "state.redb";

/// Entries of the directory that `mco up` creates and `purge` removes; the lock comes last.
const ENTRIES: [&str; 9] =
    [DATABASE, LOGS, "kubeconfig", "token", "ca.key", "ca.crt", SERVER, NODES, LOCK];

/// The state directory, locked by this process.
#[derive(Debug)]
pub(crate) struct StateDir {
    dir: PathBuf,
    /// Released by the kernel when this process ends.
    _lock: File,
}

impl StateDir {
    /// Creates the directory, for its owner only, if it is missing and takes the lock.
    pub(crate) fn lock(dir: &Path) -> anyhow::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.with_context(|| format!("failed to create {}", dir.display()))?;
        let path = dir.join(LOCK);
        let open =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut lock = open.with_context(|| format!("failed to open {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder =
                    holder(&mut lock)?.map(|pid| format!(" (process {})", pid.as_raw_nonzero()));
                return Err(error_with_hint(
                    format!(
                        "`mco up` is already running on {}{}",
                        dir.display(),
                        holder.unwrap_or_default()
                    ),
                    "`mco status` shows that cluster and `mco down` stops it; --dir DIR starts another",
                ));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("failed to lock {}", path.display()));
            }
        }
        lock.set_len(0)?;
        lock.rewind()?;
        writeln!(lock, "{}", std::process::id())?;
        let dir = std::path::absolute(dir)?;
        Ok(Self { dir, _lock: lock })
    }

    /// Returns the directory, which contains the state of the API server and the kubeconfig.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the name of the cluster's context in kubeconfigs; it differs between directories.
    pub(crate) fn context(&self) -> String {
        context_name(&self.dir)
    }

    /// Returns true if the directory has the database of an embedded API server.
    pub(crate) fn has_database(&self) -> bool {
        self.dir.join(DATABASE).exists()
    }

    /// Returns true if the directory was used with a cluster elsewhere.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !self.has_database() && self.dir.join("kubeconfig").exists()
    }

    /// Returns the directory with the keys of the config server.
    pub(crate) fn server(&self) -> PathBuf {
        self.dir.join(SERVER)
    }

    /// Returns the names of the nodes that have a root directory.
    pub(crate) fn nodes(&self) -> anyhow::Result<Vec<String>> {
        Ok(Root::open(&self.dir)?.list(&format!("/{NODES}"))?)
    }

    /// Removes the root directory of a node.
    pub(crate) fn remove_node(&self, name: &str) -> anyhow::Result<()> {
        Ok(Root::open(&self.dir)?.remove_tree(&format!("/{NODES}/{name}"))?)
    }

    /// Returns true if a machine has its first config.
    pub(crate) fn is_installed(&self, name: &str) -> bool {
        self.node(name).join(disk::CURRENT_CONFIG.trim_start_matches('/')).exists()
    }

    /// Returns the root directory of a node.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.dir.join(NODES).join(name)
    }
}

/// Returns the context of a state directory: its name, or that of the directory around a `.mco`, and four
/// digits that follow from the whole path.
fn context_name(dir: &Path) -> String {
    let is_plain = |name: &&std::ffi::OsStr| *name != DEFAULT_DIR;
    let name = dir.file_name().filter(is_plain).or_else(|| dir.parent()?.file_name());
    let name = name.unwrap_or_default().to_string_lossy();
    let mut words = vec!["mco".to_owned()];
    let plain = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "-");
    words.extend(Some(plain.trim_matches('-').to_owned()).filter(|name| !name.is_empty()));
    let digest = ring::digest::digest(&ring::digest::SHA256, dir.as_os_str().as_encoded_bytes());
    let digits = digest.as_ref().first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    words.push(format!("{:04x}", digits.unwrap_or_default()));
    words.join("-")
}

/// The state of `mco up` in a directory.
#[derive(Debug)]
pub(crate) enum UpState {
    /// The directory was never used.
    Absent,
    /// No process is running; this process holds the lock as long as the value lives.
    Stopped(File),
    /// A process is running.
    Running {
        /// The lock file, locked by the other process.
        lock: File,
        /// The other process; `None` until that process has written its id.
        process: Option<Pid>,
    },
}

impl UpState {
    /// Reads the state from the lock file.
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(LOCK);
        let mut lock = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Absent),
            Err(error) => {
                return Err(error).with_context(|| format!("failed to open {}", path.display()));
            }
        };
        match lock.try_lock() {
            Ok(()) => Ok(Self::Stopped(lock)),
            Err(TryLockError::WouldBlock) => {
                let process = holder(&mut lock)?;
                Ok(Self::Running { lock, process })
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("failed to lock {}", path.display()))
            }
        }
    }
}

/// Sends SIGTERM to a process, which ends it as Ctrl-C does.
pub(crate) fn stop(process: Pid) -> io::Result<()> {
    match rustix::process::kill_process(process, Signal::TERM) {
        // The process has already ended.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Removes the entries that `mco up` created, and the directory if it is empty then.
#[expect(clippy::disallowed_methods, reason = "the directory belongs to the command itself")]
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_contexts_of_two_directories_differ() {
        let context = |dir: &str| context_name(Path::new(dir));
        assert!(context("/home/a/shop/.mco").starts_with("mco-shop-"));
        assert!(context("/tmp/big cluster").starts_with("mco-big-cluster-"));
        assert_ne!(context("/home/a/shop/.mco"), context("/home/b/shop/.mco"));
        assert_eq!(context("/.mco").split('-').count(), 2);
    }

    #[test]
    fn a_directory_is_locked_once() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/.mco");
        assert!(matches!(UpState::read(&dir).unwrap(), UpState::Absent));
        let state = StateDir::lock(&dir).unwrap();
        let mode = dir.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "it contains keys");
        let second = StateDir::lock(&dir).unwrap_err().to_string();
        assert!(second.contains(&format!("(process {})", std::process::id())), "{second}");
        assert!(matches!(UpState::read(&dir).unwrap(), UpState::Running { process: Some(_), .. }));
        drop(state);
        assert!(matches!(UpState::read(&dir).unwrap(), UpState::Stopped(_)));
        StateDir::lock(&dir).unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test creates the files it purges")]
    fn a_purge_removes_only_entries_of_mco_up() {
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
