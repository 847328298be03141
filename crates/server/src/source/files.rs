//! Parsed files, read again when they change.

use std::{
    collections::HashMap,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mco_cluster::Clock;
use mco_core::yaml::{self, YamlError};
use serde::de::DeserializeOwned;

use super::LookupError;

/// Maximum size of a file; a MachineConfig has a megabyte at most.
const MAX_BYTES: u64 = 32 << 20;

/// Age of a file below which two changes can have the same time, in milliseconds.
const UNSETTLED: i64 = 2_000;

/// Maximum number of files in a cache. A pool has one config at a time, so old ones are few.
const MAX_FILES: usize = 32;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
    /// The file is too large.
    #[error("{} exceeds {MAX_BYTES} bytes", .0.display())]
    TooLarge(PathBuf),
    /// The file is not YAML.
    #[error("{} is not valid YAML", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        source: YamlError,
    },
    /// The file has another number of objects than one.
    #[error("{} must contain exactly one object", .0.display())]
    Count(PathBuf),
    /// A member of the object has the wrong type. serde's message would quote its value.
    #[error("the object in {} has a member of the wrong type; `mco check` names it", .0.display())]
    Object(PathBuf),
    /// The kubeconfig names no API server.
    #[error("the kubeconfig {} has no clusters", .0.display())]
    NoClusters(PathBuf),
}

impl FileError {
    /// Returns the error of a lookup, which is `missing` if the file does not exist.
    pub(super) fn or_missing(self, missing: impl FnOnce() -> LookupError) -> LookupError {
        if self.is_missing() { missing() } else { LookupError::File(self) }
    }

    /// Returns true if the file does not exist, or not yet.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A function that parses the bytes of a file.
type Parse<T> = fn(&Path, &[u8]) -> Result<T, FileError>;

/// Files that are parsed to `T`, with their contents at the last read.
pub(super) struct Files<T> {
    parse: Parse<T>,
    clock: Clock,
    known: Mutex<HashMap<PathBuf, Known<T>>>,
}

struct Known<T> {
    stamp: Stamp,
    /// The stamp is old enough that a later change has another one.
    is_settled: bool,
    bytes: Arc<[u8]>,
    value: Arc<T>,
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        let Self { stamp, is_settled, bytes, value } = self;
        let (bytes, value) = (bytes.clone(), value.clone());
        Self { stamp: *stamp, is_settled: *is_settled, bytes, value }
    }
}

/// Facts of a file that differ after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl<T: Send + Sync + 'static> Files<T> {
    pub(super) fn new(clock: Clock, parse: Parse<T>) -> Self {
        Self { parse, clock, known: Mutex::default() }
    }

    /// Returns the contents of a file. The file is read if it has changed, and parsed if its bytes
    /// have.
    pub(super) async fn get(&self, path: &Path) -> Result<Arc<T>, FileError> {
        // Before the read: a change during the read is noticed by the next call.
        let stamp = stamp(path).await?;
        let known = self.lock().get(path).cloned();
        if let Some(known) = known.as_ref().filter(|it| it.is_settled && it.stamp == stamp) {
            return Ok(known.value.clone());
        }
        let is_settled = self.clock.now().as_millisecond() - stamp.changed_ms() > UNSETTLED;
        let named = |source| FileError::Read { path: path.to_owned(), source };
        let bytes: Arc<[u8]> = tokio::fs::read(path).await.map_err(named)?.into();
        let value = match known.filter(|known| known.bytes == bytes) {
            Some(known) => known.value,
            None => Arc::new((self.parse)(path, &bytes)?),
        };
        let new = Known { stamp, is_settled, bytes, value: value.clone() };
        let mut files = self.lock();
        if files.len() >= MAX_FILES {
            files.clear();
        }
        files.insert(path.to_owned(), new);
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Known<T>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stamp {
    fn changed_ms(&self) -> i64 {
        let (seconds, nanoseconds) = self.changed;
        seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000)
    }
}

async fn stamp(path: &Path) -> Result<Stamp, FileError> {
    let named = |source| FileError::Read { path: path.to_owned(), source };
    let facts = tokio::fs::metadata(path).await.map_err(named)?;
    if facts.len() > MAX_BYTES {
        return Err(FileError::TooLarge(path.to_owned()));
    }
    Ok(Stamp {
        device: facts.dev(),
        inode: facts.ino(),
        size: facts.len(),
        changed: (facts.ctime(), facts.ctime_nsec()),
    })
}

/// Parses a file with one object.
pub(super) fn object<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, FileError> {
    let path = || path.to_owned();
    let text = str::from_utf8(bytes).map_err(|error| {
        let source = io::Error::new(io::ErrorKind::InvalidData, error);
        FileError::Read { path: path(), source }
    })?;
    let found = yaml::documents(text);
    let mut found = found.map_err(|source| FileError::Yaml { path: path(), source })?;
    let (Some(object), true) = (found.pop(), found.is_empty()) else {
        return Err(FileError::Count(path()));
    };
    serde_json::from_value(object).map_err(|_| FileError::Object(path()))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "writes to a temporary folder")]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static PARSED: AtomicU32 = AtomicU32::new(0);

    fn parse(path: &Path, bytes: &[u8]) -> Result<String, FileError> {
        PARSED.fetch_add(1, Ordering::Relaxed);
        object(path, bytes)
    }

    #[tokio::test]
    async fn a_file_is_parsed_once_for_each_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let files = Files::new(Clock::System, parse);
        assert!(files.get(&path).await.unwrap_err().is_missing());
        // The second text has the size of the first, and comes within the same tick of the clock.
        for (text, parsed) in [("one", 1), ("two", 2), ("two", 2), ("three", 3)] {
            std::fs::write(&path, text).unwrap();
            let first = files.get(&path).await.unwrap();
            let again = files.get(&path).await.unwrap();
            assert_eq!(*first, text);
            assert!(Arc::ptr_eq(&first, &again));
            assert_eq!(PARSED.load(Ordering::Relaxed), parsed, "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(files.get(&path).await.unwrap_err().is_missing());
    }

    #[test]
    fn faults_name_the_file_and_no_value() {
        let rows = [
            ("a: [hunter2", "a.yaml is not valid YAML"),
            ("--- {}\n--- {}\n", "a.yaml must contain exactly one object"),
            ("", "a.yaml must contain exactly one object"),
            (
                "[hunter2]",
                "the object in a.yaml has a member of the wrong type; `mco check` names it",
            ),
        ];
        for (text, expected) in rows {
            let found = object::<HashMap<String, u8>>(Path::new("a.yaml"), text.as_bytes());
            assert_eq!(found.unwrap_err().to_string(), expected, "{text}");
        }
    }
}
