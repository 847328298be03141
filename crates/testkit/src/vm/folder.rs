//! The folder of a test's machines, removed when the test ends, even if it is killed.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;

/// Removes the folder once its input ends. Tries again, because a machine may still write to it.
const REMOVE: &str = "read -r _; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf \"$0\" 2>/dev/null && exit; sleep 0.2; done";

/// A folder for disks and states of machines. Removed when dropped.
#[derive(Debug)]
pub struct VmFolder {
    path: PathBuf,
    /// Locked while this process runs.
    _lock: File,
    /// Removes the folder when its input ends, which the kernel closes with this process.
    remover: Child,
}

impl VmFolder {
    /// Creates a folder in `parent`. Removes the folders of processes that have ended first.
    pub fn make(parent: &Path) -> anyhow::Result<Self> {
        let _lock_of_all = clean(parent)?;
        let path = loop {
            let path = parent.join(format!("{:06x}", fastrand::u32(..0x100_0000)));
            match fs::create_dir(&path) {
                Ok(()) => break path,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let what = || format!("failed to create {}", path.display());
                    return Err(error).with_context(what);
                }
            }
        };
        let lock = File::create(path.join("lock")).context("failed to create a lock")?;
        lock.lock().context("failed to lock a folder")?;
        let remover = Command::new("sh")
            .args(["-c", REMOVE])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C must not reach the process, which still has to remove the folder.
            .process_group(0)
            .spawn()
            .context("failed to start the process that removes the folder")?;
        Ok(Self { path, _lock: lock, remover })
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a new name in the folder.
    #[must_use]
    pub fn new_path(&self, prefix: &str) -> PathBuf {
        self.path.join(format!("{prefix}-{:08x}", fastrand::u32(..)))
    }
}

/// Removes all folders whose process has ended. No other folder is created while the returned lock is
/// held.
fn clean(parent: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))?;
    let lock_of_all =
        File::create(parent.join(".lock")).context("failed to create the lock of all folders")?;
    lock_of_all.lock().context("failed to wait for the lock of all folders")?;
    for entry in fs::read_dir(parent).context("failed to list old folders")? {
        let folder = entry.context("failed to list old folders")?.path();
        let Ok(lock) = File::open(folder.join("lock")) else { continue };
        if lock.try_lock().is_ok() {
            // Its own process may be removing it, too.
            drop(fs::remove_dir_all(&folder));
        }
    }
    Ok(lock_of_all)
}

impl Drop for VmFolder {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        drop(self.remover.wait());
    }
}
