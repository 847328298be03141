//! The state of a cache, and the rules for lists, events and writes. See the [cache](super).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Resource;
use tokio::time::Instant;

use super::storage::Stored;
use crate::{
    Object,
    watch::{IDLE_LIMIT, Unreadable},
};

/// The source of an object's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The watch, which delivers all states in order.
    Watch,
    /// A list with this version.
    List { version: Option<u64> },
    /// The response to a write, which may arrive after the watch has delivered a later state.
    Write,
    /// The response to a create, which may arrive before the watch delivers the object.
    Create,
}

/// The objects of a cache.
pub(super) struct Objects<K> {
    by_name: BTreeMap<String, Stored<K>>,
    /// Writes that the watch has not delivered yet.
    unconfirmed: BTreeMap<String, Write>,
    /// Objects that cannot be decoded.
    unreadable: BTreeMap<String, Arc<Unreadable>>,
    /// Objects that could not be decoded before and can be now, or were deleted.
    resolved: Vec<Arc<Unreadable>>,
    /// Names in the list that is being received.
    listed: BTreeSet<String>,
    /// Version of the list that is being received.
    list_version: Option<u64>,
    /// Number of lists that were started.
    lists: u64,
    /// Version up to which the watch has delivered all changes.
    watched: u64,
}

/// A write of this process.
#[derive(Clone, Copy, Debug)]
struct Write {
    version: u64,
    /// Number of lists that were started before the response arrived.
    lists: u64,
    at: Instant,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            by_name: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            resolved: Vec::new(),
            listed: BTreeSet::new(),
            list_version: None,
            lists: 0,
            watched: 0,
        }
    }
}

impl<K> Objects<K> {
    pub(super) fn get(&self, name: &str) -> Option<Arc<K>> {
        self.by_name.get(name).map(Stored::load)
    }

    pub(super) fn list(&self) -> Vec<Arc<K>> {
        self.by_name.values().map(Stored::load).collect()
    }

    pub(super) fn insert(&mut self, name: String, object: Stored<K>) {
        self.by_name.insert(name, object);
    }

    pub(super) fn unreadable(&self) -> Vec<Arc<Unreadable>> {
        self.unreadable.values().cloned().collect()
    }

    pub(super) fn unreadable_count(&self) -> usize {
        self.unreadable.len()
    }

    /// Records an object that cannot be decoded. Returns false if this fault of it is known.
    pub(super) fn set_unreadable(&mut self, object: &Arc<Unreadable>, source: Source) -> bool {
        let name = object.key();
        if let Source::List { .. } = source {
            self.listed.insert(name.clone());
        }
        // The rest of a salvaged object was accepted a moment ago, which resolved the object.
        let resolved = self.resolved.iter().position(|resolved| resolved.key() == name);
        let resolved = resolved.map(|at| self.resolved.swap_remove(at));
        let known = self.unreadable.insert(name, object.clone()).or(resolved);
        known.is_none_or(|known| known.uid != object.uid || known.fault != object.fault)
    }

    /// Records that the object of that name can be decoded, or does not exist.
    pub(super) fn resolve(&mut self, name: &str) {
        self.resolved.extend(self.unreadable.remove(name));
    }

    /// Takes the objects that were resolved since the last call.
    pub(super) fn take_resolved(&mut self) -> Vec<Arc<Unreadable>> {
        std::mem::take(&mut self.resolved)
    }

    /// Prepares for a list, which is about to be requested.
    pub(super) fn start_list(&mut self) {
        self.lists = self.lists.saturating_add(1);
        self.listed.clear();
        self.list_version = None;
    }

    /// Sets the version of the list that is being received.
    pub(super) fn set_list_version(&mut self, version: Option<u64>) {
        self.list_version = version;
    }

    /// Sets the version up to which the watch has delivered all changes.
    pub(super) fn set_watched(&mut self, version: Option<u64>) {
        self.watched = version.unwrap_or(self.watched);
    }

    /// Removes the objects that the list lacks, and returns them.
    pub(super) fn finish_list(&mut self) -> Vec<Arc<K>> {
        // The list may belong to another history, whose versions are lower.
        self.watched = self.list_version.unwrap_or_default();
        let listed = std::mem::take(&mut self.listed);
        let is_unlisted = |name: &&String| !listed.contains(*name);
        let resolved: Vec<String> = self.unreadable.keys().filter(is_unlisted).cloned().collect();
        for name in &resolved {
            self.resolve(name);
        }
        let is_gone = |name: &&String| !listed.contains(*name);
        let absent: Vec<String> = self.by_name.keys().filter(is_gone).cloned().collect();
        let version = self.list_version;
        let gone = absent.into_iter().filter(|name| !self.survives_list(name, version));
        let gone: Vec<String> = gone.collect();
        gone.iter()
            .filter_map(|name| {
                self.unconfirmed.remove(name);
                self.by_name.remove(name).map(|object| object.load())
            })
            .collect()
    }

    /// Returns true if the object has a write that is later than a list with this version.
    fn survives_list(&self, name: &str, version: Option<u64>) -> bool {
        let write = self.unconfirmed.get(name);
        write.is_some_and(|write| {
            write.lists == self.lists && version.is_some_and(|version| write.version > version)
        })
    }

    /// Returns true if a write of this process is not part of the history that the watch delivers.
    pub(super) fn has_lost_write(&self) -> bool {
        self.unconfirmed
            .values()
            .any(|write| write.version <= self.watched || write.at.elapsed() > IDLE_LIMIT)
    }
}

impl<K: Object> Objects<K> {
    /// Returns true if `new` replaces the cached state, and records what is known of it.
    pub(super) fn accepts(
        &mut self,
        name: &str,
        known: Option<&K>,
        new: &K,
        source: Source,
    ) -> bool {
        let made = version(new);
        match source {
            Source::Watch => {
                self.resolve(name);
                self.set_watched(made);
                let write = self.unconfirmed.get(name).map(|write| write.version);
                if write.zip(made).is_some_and(|(write, made)| made < write) {
                    return false;
                }
                self.unconfirmed.remove(name);
                known.is_none_or(|known| !is_same_state(known, new))
            }
            Source::List { version } => {
                self.resolve(name);
                self.listed.insert(name.to_owned());
                if self.survives_list(name, version) {
                    return false;
                }
                self.unconfirmed.remove(name);
                known.is_none_or(|known| !is_same_state(known, new) || !is_same_text(known, new))
            }
            Source::Write | Source::Create => {
                let is_after_watch = made.is_none_or(|made| made > self.watched);
                let is_news = match known {
                    _ if !is_after_watch => false,
                    None => source == Source::Create && made.is_some(),
                    Some(known) if known.meta().uid != new.meta().uid => source == Source::Create,
                    Some(known) => is_newer(new, known),
                };
                if let (true, Some(version)) = (is_news, made) {
                    let write = Write { version, lists: self.lists, at: Instant::now() };
                    self.unconfirmed.insert(name.to_owned(), write);
                }
                is_news
            }
        }
    }

    /// Removes the object of that name and returns it. An object of another uid and a later version is
    /// a successor and stays.
    pub(super) fn remove(
        &mut self,
        name: &str,
        gone: Option<u64>,
        uid: Option<&str>,
    ) -> Option<Arc<K>> {
        let known = self.get(name)?;
        let is_later = version(&*known).zip(gone).is_none_or(|(known, gone)| known > gone);
        if known.meta().uid.as_deref() != uid && is_later {
            return None;
        }
        self.unconfirmed.remove(name);
        self.by_name.remove(name);
        Some(known)
    }
}

/// Returns true if both are the same version of the same object.
fn is_same_state<K: Resource>(one: &K, other: &K) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.uid == other.uid
        && one.resource_version.is_some()
        && one.resource_version == other.resource_version
}

/// Returns true if both have the same contents: in another history, the same version of the same
/// object can differ.
fn is_same_text<K: Object>(one: &K, other: &K) -> bool {
    matches!((one.encode(), other.encode()), (Ok(one), Ok(other)) if one == other)
}

/// Returns true if `new` is a later state than `known`.
fn is_newer<K: Resource>(new: &K, known: &K) -> bool {
    match (version(new), version(known)) {
        (Some(new), Some(known)) => new > known,
        _ => true,
    }
}

/// Returns the resource version as a number.
pub(super) fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}
