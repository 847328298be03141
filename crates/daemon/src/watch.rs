//! Watches the paths of a config for changes with inotify.
//!
//! The kernel watches directories, so that a file that is replaced or deleted is noticed too. A
//! missing directory is watched for from its nearest existing parent. Directories are opened inside
//! the machine's root, so that a link cannot lead the watch out of the root.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    os::fd::AsRawFd as _,
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _};
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use mco_host::{Root, RootError};

/// Quiet time after a change: editors write a file in several steps.
const QUIET: Duration = Duration::from_millis(30);

/// Holds a few dozen events; the kernel queues the rest.
const BUFFER: usize = 4096;

/// A failed watch.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// inotify failed.
    #[error("failed to watch {path}")]
    Kernel {
        /// The watched path.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A directory cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// An inotify watch over some paths of a machine.
pub struct Watch {
    events: EventStream<Vec<u8>>,
    /// The watched names in each directory.
    names: HashMap<WatchDescriptor, BTreeSet<String>>,
    /// True if a change has not been returned yet.
    has_change: bool,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("directories", &self.names.len()).finish_non_exhaustive()
    }
}

impl Watch {
    /// Starts to watch these paths. Must be called inside a tokio runtime.
    pub fn new<'p>(root: &Root, paths: impl Iterator<Item = &'p str>) -> Result<Self, WatchError> {
        let failed = |path: &str| {
            let path = path.to_owned();
            move |source| WatchError::Kernel { path, source }
        };
        let inotify = Inotify::init().map_err(failed("/"))?;
        let mut names = HashMap::new();
        for (directory, wanted) in directories(root, paths)? {
            let Some(handle) = root.directory(&directory)? else { continue };
            let mask = WatchMask::CLOSE_WRITE
                | WatchMask::MODIFY
                | WatchMask::ATTRIB
                | WatchMask::CREATE
                | WatchMask::DELETE
                | WatchMask::MOVED_FROM
                | WatchMask::MOVED_TO
                | WatchMask::DELETE_SELF
                | WatchMask::MOVE_SELF;
            let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
            let descriptor = inotify.watches().add(path, mask).map_err(failed(&directory))?;
            // Two paths may lead to one directory.
            names.entry(descriptor).or_insert_with(BTreeSet::new).extend(wanted);
        }
        let events = inotify.into_event_stream(vec![0; BUFFER]).map_err(failed("/"))?;
        Ok(Self { events, names, has_change: false })
    }

    /// Waits until one of the paths changes.
    ///
    /// Cancel safe: a change that was seen before the cancellation is returned by the next call.
    pub async fn changed(&mut self) -> Result<(), WatchError> {
        while !self.has_change {
            self.has_change = self.is_relevant().await?;
        }
        // Events in quick succession belong to the same change.
        tokio::time::sleep(QUIET).await;
        while self.events.next().now_or_never().flatten().is_some() {}
        self.has_change = false;
        Ok(())
    }

    async fn is_relevant(&mut self) -> Result<bool, WatchError> {
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel closed the watch");
        let event = self.events.next().await.unwrap_or_else(|| Err(ended()));
        let event = event.map_err(|source| WatchError::Kernel { path: "/".to_owned(), source })?;
        // The kernel dropped events, or a directory is gone: any path may have changed.
        let lost = EventMask::Q_OVERFLOW
            | EventMask::IGNORED
            | EventMask::DELETE_SELF
            | EventMask::MOVE_SELF;
        if event.mask.intersects(lost) {
            return Ok(true);
        }
        let Some(name) = event.name.as_ref().and_then(|name| name.to_str()) else {
            return Ok(false);
        };
        Ok(self.names.get(&event.wd).is_some_and(|names| names.contains(name)))
    }
}

/// Returns the directories to watch, with the watched names in each.
fn directories<'p>(
    root: &Root,
    paths: impl Iterator<Item = &'p str>,
) -> Result<BTreeMap<String, BTreeSet<String>>, RootError> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in paths {
        let mut path = path;
        while let Some((directory, name)) = path.rsplit_once('/') {
            let at = if directory.is_empty() { "/" } else { directory };
            let is_there = root.directory(at)?.is_some();
            if is_there {
                found.entry(at.to_owned()).or_default().insert(name.to_owned());
                break;
            }
            path = directory;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use mco_testkit::PATIENCE;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_wait_does_not_lose_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.write("/etc/a", b"1", 0o644).unwrap();
        let mut watch = Watch::new(&root, ["/etc/a"].into_iter()).unwrap();
        root.write("/etc/a", b"2", 0o644).unwrap();
        assert!(timeout(QUIET / 2, watch.changed()).await.is_err(), "the quiet time is not over");
        timeout(PATIENCE, watch.changed()).await.expect("the change is returned").unwrap();
    }
}
