//! Watches the paths of a config for changes with inotify, or by polling if no watch is free.
//!
//! The kernel watches directories, so that a file that is replaced or deleted is noticed too. A
//! missing directory is watched for from its nearest existing parent. Directories are opened inside
//! the machine's root, so that a link cannot lead the watch out of the root.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    os::fd::AsRawFd as _,
    sync::Once,
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _};
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use mco_host::{FileVersion, Root, RootError};
use tokio::time::Instant;
use tracing::warn;

/// Quiet time after a change: editors write a file in several steps.
const QUIET: Duration = Duration::from_millis(30);

/// Interval of the comparisons if the kernel has no watch left.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

// Error numbers of the kernel, the same on every architecture.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// Polling is logged once: the watch is renewed with every verification of the disk.
static SAID: Once = Once::new();

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

/// A watch over some paths of a machine.
pub struct Watch {
    source: Source,
    /// True if a change has not been returned yet.
    has_change: bool,
}

enum Source {
    /// The kernel reports changes.
    Kernel {
        events: EventStream<Vec<u8>>,
        /// The watched names in each directory.
        names: HashMap<WatchDescriptor, BTreeSet<String>>,
    },
    /// The paths are compared with their versions at intervals.
    Polling { root: Root, versions: Versions, next: Instant },
}

type Versions = BTreeMap<String, Option<FileVersion>>;

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, number) = match &self.source {
            Source::Kernel { names, .. } => ("directories", names.len()),
            Source::Polling { versions, .. } => ("polled_paths", versions.len()),
        };
        f.debug_struct("Watch").field(name, &number).finish_non_exhaustive()
    }
}

impl Watch {
    /// Starts to watch these paths. Must be called inside a tokio runtime.
    ///
    /// A user has few inotify instances, and other programs may hold all of them. The paths are
    /// polled then.
    pub fn new<'p>(root: &Root, paths: impl Iterator<Item = &'p str>) -> Result<Self, WatchError> {
        Self::with(Inotify::init(), root, paths)
    }

    fn with<'p>(
        inotify: io::Result<Inotify>,
        root: &Root,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<Self, WatchError> {
        let paths: Vec<&str> = paths.collect();
        let opened = inotify.map_err(|source| WatchError::Kernel { path: "/".to_owned(), source });
        let source = match opened.and_then(|inotify| kernel(inotify, root, &paths)) {
            Err(WatchError::Kernel { source, .. }) if is_exhausted(&source) => {
                SAID.call_once(|| {
                    let seconds = POLL_INTERVAL.as_secs();
                    warn!(error = %source, seconds, "No inotify watch is free; polling the paths");
                });
                let root = root.try_clone()?;
                let versions = versions(&root, paths.into_iter())?;
                Source::Polling { root, versions, next: Instant::now() + POLL_INTERVAL }
            }
            made => made?,
        };
        Ok(Self { source, has_change: false })
    }

    /// Waits until one of the paths changes.
    ///
    /// Cancel safe: a change that was seen before the cancellation is returned by the next call.
    pub async fn changed(&mut self) -> Result<(), WatchError> {
        while !self.has_change {
            self.has_change = match &mut self.source {
                Source::Kernel { events, names } => is_relevant(events, names).await?,
                Source::Polling { root, versions, next } => {
                    tokio::time::sleep_until(*next).await;
                    *next = Instant::now() + POLL_INTERVAL;
                    let found = self::versions(root, versions.keys().map(String::as_str))?;
                    let before = std::mem::replace(versions, found);
                    before != *versions
                }
            };
        }
        if let Source::Kernel { events, .. } = &mut self.source {
            // Events in quick succession belong to the same change.
            tokio::time::sleep(QUIET).await;
            while events.next().now_or_never().flatten().is_some() {}
        }
        self.has_change = false;
        Ok(())
    }
}

/// Returns true if the kernel has no inotify instance or no watch left.
fn is_exhausted(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [ENFILE, EMFILE, ENOSPC].contains(&code))
}

fn versions<'p>(root: &Root, paths: impl Iterator<Item = &'p str>) -> Result<Versions, RootError> {
    paths.map(|path| Ok((path.to_owned(), root.version(path)?))).collect()
}

/// Has the kernel watch the directories of these paths.
fn kernel(inotify: Inotify, root: &Root, paths: &[&str]) -> Result<Source, WatchError> {
    let failed = |path: &str| {
        let path = path.to_owned();
        move |source| WatchError::Kernel { path, source }
    };
    let mut names = HashMap::new();
    for (directory, wanted) in directories(root, paths.iter().copied())? {
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
    Ok(Source::Kernel { events, names })
}

async fn is_relevant(
    events: &mut EventStream<Vec<u8>>,
    names: &HashMap<WatchDescriptor, BTreeSet<String>>,
) -> Result<bool, WatchError> {
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel closed the watch");
    let event = events.next().await.unwrap_or_else(|| Err(ended()));
    let event = event.map_err(|source| WatchError::Kernel { path: "/".to_owned(), source })?;
    // The kernel dropped events, or a directory is gone: any path may have changed.
    let lost =
        EventMask::Q_OVERFLOW | EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF;
    if event.mask.intersects(lost) {
        return Ok(true);
    }
    let Some(name) = event.name.as_ref().and_then(|name| name.to_str()) else {
        return Ok(false);
    };
    Ok(names.get(&event.wd).is_some_and(|names| names.contains(name)))
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
    use rustix::io::Errno;
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
    #[tokio::test(start_paused = true)]
    async fn paths_are_polled_if_no_watch_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.write("/etc/a", b"1", 0o644).unwrap();
        for code in [Errno::MFILE, Errno::NFILE, Errno::NOSPC].map(Errno::raw_os_error) {
            let failed = Err(io::Error::from_raw_os_error(code));
            let paths = ["/etc/a", "/run/absent"].into_iter();
            let mut watch = Watch::with(failed, &root, paths).unwrap();
            assert!(timeout(10 * POLL_INTERVAL, watch.changed()).await.is_err(), "no change");
            for mode in [0o600, 0o644] {
                root.set_mode("/etc/a", mode).unwrap();
                timeout(2 * POLL_INTERVAL, watch.changed()).await.expect("a change").unwrap();
            }
            root.write("/run/absent", b"", 0o600).unwrap();
            timeout(2 * POLL_INTERVAL, watch.changed()).await.expect("a new file").unwrap();
            root.remove("/run/absent").unwrap();
        }
        let failed = Err(io::Error::from_raw_os_error(Errno::NOSYS.raw_os_error()));
        assert!(Watch::with(failed, &root, ["/etc/a"].into_iter()).is_err(), "another error");
    }
}
