//! The objects, their versions and the log of recent changes.
//!
//! One counter numbers all changes. Each collection (one per stored resource) has its objects and a
//! log of its latest changes. A watch is a position in that log: it reads the changes after the
//! last version it saw, so it can neither miss a change nor see one twice.
//!
//! Invariant: a change becomes visible to readers only after it is on disk, so a version that a
//! client has seen is never assigned again, not even after a power failure.

pub(crate) mod disk;
mod encode;
mod object;
pub(crate) mod owners;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    path::Path,
    sync::{Arc, RwLock, RwLockReadGuard},
};

use serde_json::Value;
use tokio::sync::watch;

use disk::Committer;
pub(crate) use disk::OpenError;
use encode::prepare;
pub(crate) use encode::{MAX_DEPTH, stamped, unstored};
pub(crate) use object::{Head, Object};
use owners::{Owners, Place};

/// Maximum size of a log as text. With large objects it holds fewer changes.
const MAX_LOG_BYTES: usize = 16 * 1024 * 1024;

/// Number of changes that a log keeps regardless of their size.
const MIN_LOG_LEN: usize = 64;

/// The key of an object in its collection.
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

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One change of a collection.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) object: Arc<Object>,
    pub(crate) before: Option<Arc<Object>>,
}

/// A write request to the store.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) collection: Arc<str>,
    pub(crate) key: Key,
    /// The version that the object must have. `None`: the object must not exist.
    pub(crate) expect: Option<u64>,
    pub(crate) put: Put,
}

/// The new state of the object. The store fills in its version.
#[derive(Clone, Debug)]
pub(crate) enum Put {
    Keep(Value),
    Remove(Value),
}

/// An error of a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("the object is not at the expected version")]
    Stale,
    #[error("failed to write to the store: {0}")]
    Disk(String),
    #[error("the object is too large")]
    TooLarge(usize),
    #[error("the object is nested too deeply")]
    TooDeep,
}

/// The requested version is older than the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest version that a watch may start from.
    pub(crate) oldest: u64,
}

#[derive(Debug)]
struct Collection {
    objects: BTreeMap<Key, Arc<Object>>,
    log: VecDeque<Change>,
    /// The size of the log's objects as text.
    log_bytes: usize,
    /// The log contains all changes after this version.
    log_start: u64,
    signal: watch::Sender<u64>,
}

impl Collection {
    fn new(log_start: u64) -> Self {
        let (signal, _) = watch::channel(log_start);
        Self { objects: BTreeMap::new(), log: VecDeque::new(), log_bytes: 0, log_start, signal }
    }
}

impl Collection {
    /// Returns the objects after the key `after`, of one namespace or of all.
    fn within<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
        let first = namespace.map(|namespace| Key::new(namespace, ""));
        let start = match (after, &first) {
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let rest = self.objects.range((start, Bound::Unbounded));
        rest.take_while(move |(key, _)| namespace.is_none_or(|it| key.namespace == it))
    }

    /// Appends a change to the log. Drops the oldest changes if the log exceeds its limits.
    fn append(&mut self, change: Change, watch_history: usize) {
        self.log_bytes += change.object.bytes.len();
        self.log.push_back(change);
        while self.log.len() > watch_history
            || (self.log_bytes > MAX_LOG_BYTES && self.log.len() > MIN_LOG_LEN)
        {
            let Some(dropped) = self.log.pop_front() else { return };
            self.log_bytes = self.log_bytes.saturating_sub(dropped.object.bytes.len());
            self.log_start = dropped.object.version;
        }
    }
}

/// Maximum number of changes that a watch reads at once.
const MAX_CHANGES: usize = 256;

#[derive(Debug)]
struct State {
    version: u64,
    /// The version at the start of this process. No log contains older changes.
    start_version: u64,
    collections: BTreeMap<Arc<str>, Collection>,
    owners: Owners,
}

/// State and limits, shared with the thread that writes to disk.
#[derive(Debug)]
struct Shared {
    state: RwLock<State>,
    watch_history: usize,
}

/// The store. See the module documentation.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    committer: Option<Committer>,
}

impl Store {
    /// Creates a store in memory.
    pub(crate) fn in_memory(watch_history: usize) -> Self {
        // No object gets version 1, because clients read "0" as "any version".
        let state = State::new(1);
        Self {
            shared: Arc::new(Shared { state: RwLock::new(state), watch_history }),
            committer: None,
        }
    }

    /// Opens the store in the file at `path`.
    pub(crate) fn open(path: &Path, watch_history: usize) -> Result<Self, OpenError> {
        let (database, version, objects) = disk::load(path)?;
        let mut state = State::new(version);
        for (collection, key, object) in objects {
            let place = (collection, key);
            state.owners.replace(&place, None, Some(&object.head));
            let (collection, key) = place;
            let collection =
                state.collections.entry(collection).or_insert_with(|| Collection::new(version));
            collection.objects.insert(key, Arc::new(object));
        }
        let shared = Arc::new(Shared { state: RwLock::new(state), watch_history });
        let committer = Committer::start(database, Arc::clone(&shared))?;
        Ok(Self { shared, committer: Some(committer) })
    }

    /// Returns the latest version.
    pub(crate) fn version(&self) -> u64 {
        self.shared.read().version
    }

    /// Returns the object at `key`.
    pub(crate) fn get(&self, collection: &str, key: &Key) -> Option<Arc<Object>> {
        self.shared.read().collections.get(collection)?.objects.get(key).cloned()
    }

    /// Returns the places of the objects that name this UID as an owner.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<Place> {
        self.shared.read().owners.dependents(uid)
    }

    /// Returns true if a collection has no objects.
    pub(crate) fn is_empty(&self, collection: &str) -> bool {
        let state = self.shared.read();
        state.collections.get(collection).is_none_or(|found| found.objects.is_empty())
    }

    /// Returns the objects after the key `after`, of one namespace or of all, and the version of
    /// the list.
    pub(crate) fn list(
        &self,
        collection: &str,
        namespace: Option<&str>,
        after: Option<&Key>,
    ) -> (Vec<Arc<Object>>, u64) {
        let state = self.shared.read();
        let Some(collection) = state.collections.get(collection) else {
            return (Vec::new(), state.version);
        };
        let objects = collection.within(namespace, after).map(|(_, one)| Arc::clone(one)).collect();
        (objects, state.version)
    }

    /// Returns the objects as they were at `version`, after the key `after`, of one namespace or of
    /// all.
    pub(crate) fn list_at(
        &self,
        collection: &str,
        namespace: Option<&str>,
        after: Option<&Key>,
        version: u64,
    ) -> Result<Vec<Arc<Object>>, TooOld> {
        let state = self.shared.read();
        let Some(collection) = state.collections.get(collection) else {
            return Ok(Vec::new());
        };
        if version < collection.log_start {
            return Err(TooOld { oldest: collection.log_start });
        }
        let changes = collection.log.iter().rev();
        let undone: Vec<(Key, Option<&Arc<Object>>)> = changes
            .take_while(|change| change.object.version > version)
            .map(|change| (change.object.key(), change.before.as_ref()))
            .collect();
        let mut objects: BTreeMap<&Key, &Arc<Object>> =
            collection.within(namespace, after).collect();
        let is_wanted = |key: &Key| {
            namespace.is_none_or(|namespace| key.namespace == namespace)
                && after.is_none_or(|after| key > after)
        };
        for (key, before) in undone.iter().filter(|(key, _)| is_wanted(key)) {
            match before {
                Some(before) => objects.insert(key, before),
                None => objects.remove(key),
            };
        }
        Ok(objects.into_values().map(Arc::clone).collect())
    }

    /// Returns the next changes of a collection after `version`, and the version up to which they are
    /// complete.
    pub(crate) fn since(
        &self,
        collection: &str,
        version: u64,
    ) -> Result<(Vec<Change>, u64), TooOld> {
        let state = self.shared.read();
        let Some(collection) = state.collections.get(collection) else {
            let oldest = state.start_version;
            let known = version >= oldest;
            return if known { Ok((Vec::new(), state.version)) } else { Err(TooOld { oldest }) };
        };
        if version < collection.log_start {
            return Err(TooOld { oldest: collection.log_start });
        }
        let from = collection.log.partition_point(|change| change.object.version <= version);
        let left = collection.log.len() - from;
        let changes: Vec<Change> =
            collection.log.range(from..).take(MAX_CHANGES).cloned().collect();
        let last = changes.last().filter(|_| left > MAX_CHANGES);
        let complete = last.map_or(state.version, |last| last.object.version);
        Ok((changes, complete))
    }

    /// Returns a receiver that is notified when a collection changes.
    pub(crate) fn subscribe(&self, collection: &Arc<str>) -> watch::Receiver<u64> {
        let mut state = self.shared.state.write().expect("no holder of this lock panics");
        let start_version = state.start_version;
        let collection = state
            .collections
            .entry(Arc::clone(collection))
            .or_insert_with(|| Collection::new(start_version));
        collection.signal.subscribe()
    }

    /// Commits one write. Returns when the write is on disk.
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
        let before = state.current(&write.collection, &write.key);
        let collection = &write.collection;
        let change = prepare(collection, write.expect, write.put, before, state.version + 1)?;
        let object = Arc::clone(&change.object);
        let collection = Arc::clone(collection);
        state.publish(write.collection, write.key, change, self.watch_history);
        drop(state);
        self.announce(&collection);
        Ok(object)
    }

    /// Wakes the watches of a collection. They read at once, so that no lock for writing may be held.
    fn announce(&self, collection: &str) {
        let state = self.read();
        if let Some(found) = state.collections.get(collection) {
            found.signal.send_replace(state.version);
        }
    }
}

impl State {
    fn new(version: u64) -> Self {
        Self {
            version,
            start_version: version,
            collections: BTreeMap::new(),
            owners: Owners::default(),
        }
    }

    fn current(&self, collection: &str, key: &Key) -> Option<Arc<Object>> {
        self.collections.get(collection)?.objects.get(key).cloned()
    }

    /// Makes a change visible. The watches of the collection are woken afterwards.
    fn publish(&mut self, collection: Arc<str>, key: Key, change: Change, watch_history: usize) {
        let start_version = self.start_version;
        self.version = change.object.version;
        let place = (collection, key);
        let before = change.before.as_ref().map(|before| &before.head);
        let after = (change.kind != ChangeKind::Deleted).then_some(&change.object.head);
        self.owners.replace(&place, before, after);
        let (collection, key) = place;
        let collection =
            self.collections.entry(collection).or_insert_with(|| Collection::new(start_version));
        match change.kind {
            ChangeKind::Added | ChangeKind::Modified => {
                collection.objects.insert(key, Arc::clone(&change.object));
            }
            ChangeKind::Deleted => {
                collection.objects.remove(&key);
            }
        }
        collection.append(change, watch_history);
    }
}

#[cfg(test)]
mod tests;
