//! The objects, their versions and their recent history.
//!
//! One number counts all changes; every change gets the next one. Each track (one per stored
//! resource) has its objects and a log of its latest changes. A watcher is a place in that log:
//! it reads what comes after the last version it saw, so no change can be missed or seen twice.
//!
//! Invariant: a change is visible to readers only after it is on disk, so a version that anybody
//! has seen is never given out again, not even after a power cut.

pub(crate) mod disk;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    path::Path,
    sync::{Arc, RwLock, RwLockReadGuard},
};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::object;
use disk::Committer;
pub(crate) use disk::OpenError;

/// How much text a log may hold: large objects are remembered for fewer changes.
const LOG_BYTES: usize = 16 * 1024 * 1024;

/// How many changes are remembered however large they are.
const LOG_LEAST: usize = 64;

/// Where an object is within its track.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// An object at one version, with its JSON text made once for all readers.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) value: Value,
    pub(crate) bytes: Bytes,
    pub(crate) version: u64,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Added,
    Modified,
    Deleted,
}

/// One change of a track.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) happened: Happened,
    pub(crate) object: Arc<Object>,
    pub(crate) before: Option<Arc<Object>>,
}

/// A wanted change.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) track: Arc<str>,
    pub(crate) key: Key,
    /// The version the object must have; `None`: it must not be there.
    pub(crate) expect: Option<u64>,
    pub(crate) put: Put,
}

/// What to make of the object; its version is filled in by the store.
#[derive(Clone, Debug)]
pub(crate) enum Put {
    Keep(Value),
    Remove(Value),
}

/// Why a write was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("the object is not at the expected version")]
    Stale,
    #[error("the store cannot write: {0}")]
    Disk(String),
}

/// The log no longer reaches back that far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest version a watch may start from.
    pub(crate) oldest: u64,
}

#[derive(Debug)]
struct Track {
    objects: BTreeMap<Key, Arc<Object>>,
    log: VecDeque<Change>,
    /// The size of the log's objects as text.
    log_bytes: usize,
    /// Changes after this version are all in the log.
    floor: u64,
    signal: watch::Sender<u64>,
}

impl Track {
    fn new(floor: u64) -> Self {
        let (signal, _) = watch::channel(floor);
        Self { objects: BTreeMap::new(), log: VecDeque::new(), log_bytes: 0, floor, signal }
    }
}

impl Track {
    /// Adds a change to the log, and forgets the oldest ones when it grows too long or too heavy.
    fn remember(&mut self, change: Change, remembered: usize) {
        self.log_bytes += change.object.bytes.len();
        self.log.push_back(change);
        while self.log.len() > remembered
            || (self.log_bytes > LOG_BYTES && self.log.len() > LOG_LEAST)
        {
            let Some(dropped) = self.log.pop_front() else { return };
            self.log_bytes = self.log_bytes.saturating_sub(dropped.object.bytes.len());
            self.floor = dropped.object.version;
        }
    }
}

#[derive(Debug)]
struct State {
    version: u64,
    /// The version this process began with: what was before is in no log.
    birth: u64,
    tracks: BTreeMap<Arc<str>, Track>,
}

/// State and limits, shared with the thread that writes to disk.
#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    remembered: usize,
}

/// The store; see the file's head.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    committer: Option<Committer>,
}

impl Store {
    /// A store that forgets everything when it is dropped.
    pub(crate) fn in_memory(remembered: usize) -> Self {
        // Version 1 is never an object's: clients read "0" as "any version".
        let state = State { version: 1, birth: 1, tracks: BTreeMap::new() };
        Self { shared: Arc::new(Shared { state: RwLock::new(state), remembered }), committer: None }
    }

    /// A store kept in the file at `path`.
    pub(crate) fn open(path: &Path, remembered: usize) -> Result<Self, OpenError> {
        let (database, version, objects) = disk::load(path)?;
        let mut state = State { version, birth: version, tracks: BTreeMap::new() };
        for (track, key, object) in objects {
            let track = state.tracks.entry(track).or_insert_with(|| Track::new(version));
            track.objects.insert(key, Arc::new(object));
        }
        let shared = Arc::new(Shared { state: RwLock::new(state), remembered });
        let committer = Committer::start(database, Arc::clone(&shared))?;
        Ok(Self { shared, committer: Some(committer) })
    }

    /// The latest version.
    pub(crate) fn version(&self) -> u64 {
        self.shared.read().version
    }

    /// The object at `key`.
    pub(crate) fn get(&self, track: &str, key: &Key) -> Option<Arc<Object>> {
        self.shared.read().tracks.get(track)?.objects.get(key).cloned()
    }

    /// The objects after `after`, of one namespace or of all, with the version they are of.
    pub(crate) fn list(
        &self,
        track: &str,
        namespace: Option<&str>,
        after: Option<&Key>,
    ) -> (Vec<Arc<Object>>, u64) {
        let state = self.shared.read();
        let Some(track) = state.tracks.get(track) else { return (Vec::new(), state.version) };
        let first = namespace.map(|namespace| Key::new(namespace, ""));
        let start = match (after, &first) {
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let objects = track
            .objects
            .range((start, Bound::Unbounded))
            .take_while(|(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
            .map(|(_, object)| Arc::clone(object))
            .collect();
        (objects, state.version)
    }

    /// The changes of a track after `version`, and the version up to which they are complete.
    pub(crate) fn since(&self, track: &str, version: u64) -> Result<(Vec<Change>, u64), TooOld> {
        let state = self.shared.read();
        let Some(track) = state.tracks.get(track) else {
            let oldest = state.birth;
            let known = version >= oldest;
            return if known { Ok((Vec::new(), state.version)) } else { Err(TooOld { oldest }) };
        };
        if version < track.floor {
            return Err(TooOld { oldest: track.floor });
        }
        let from = track.log.partition_point(|change| change.object.version <= version);
        Ok((track.log.range(from..).cloned().collect(), state.version))
    }

    /// Tells when a track changes.
    pub(crate) fn subscribe(&self, track: &Arc<str>) -> watch::Receiver<u64> {
        let mut state = self.shared.state.write().expect("no holder of this lock panics");
        let birth = state.birth;
        let track = state.tracks.entry(Arc::clone(track)).or_insert_with(|| Track::new(birth));
        track.signal.subscribe()
    }

    /// Does one write, or says why not; returns when it is safe on disk.
    pub(crate) async fn commit(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        match &self.committer {
            Some(committer) => committer.commit(write).await,
            None => self.shared.commit_now(write),
        }
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect("no holder of this lock panics")
    }

    fn commit_now(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        let mut state = self.state.write().expect("no holder of this lock panics");
        let before = state.current(&write.track, &write.key);
        let change = prepare(write.expect, write.put, before, state.version + 1)?;
        let object = Arc::clone(&change.object);
        state.publish(write.track, write.key, change, self.remembered);
        Ok(object)
    }
}

impl State {
    fn current(&self, track: &str, key: &Key) -> Option<Arc<Object>> {
        self.tracks.get(track)?.objects.get(key).cloned()
    }

    fn publish(&mut self, track: Arc<str>, key: Key, change: Change, remembered: usize) {
        let version = change.object.version;
        let birth = self.birth;
        self.version = version;
        let track = self.tracks.entry(track).or_insert_with(|| Track::new(birth));
        match change.happened {
            Happened::Added | Happened::Modified => {
                track.objects.insert(key, Arc::clone(&change.object));
            }
            Happened::Deleted => {
                track.objects.remove(&key);
            }
        }
        track.remember(change, remembered);
        track.signal.send_replace(version);
    }
}

/// Checks a write against the object as it is and gives it its version.
fn prepare(
    expect: Option<u64>,
    put: Put,
    before: Option<Arc<Object>>,
    version: u64,
) -> Result<Change, WriteError> {
    if before.as_ref().map(|object| object.version) != expect {
        return Err(WriteError::Stale);
    }
    let (value, happened) = match (put, &before) {
        (Put::Keep(value), None) => (value, Happened::Added),
        (Put::Keep(value), Some(_)) => (value, Happened::Modified),
        (Put::Remove(value), _) => (value, Happened::Deleted),
    };
    let object = Arc::new(stamped(value, version));
    Ok(Change { happened, object, before })
}

/// The object with this version written into it.
pub(crate) fn stamped(mut value: Value, version: u64) -> Object {
    object::set_meta(&mut value, "resourceVersion", version.to_string());
    let bytes = serde_json::to_vec(&value).expect("JSON values have a text").into();
    Object { value, bytes, version }
}

#[cfg(test)]
mod tests;
