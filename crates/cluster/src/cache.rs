//! Caches: local copies of the objects of one kind, kept up to date by one watch.
//!
//! Listeners are called for every change with the object before and after, in the order of changes,
//! and only enqueue names. The result of a write can be stored with [`Cache::learn`], so that the
//! next decision sees it even if the watch lags: otherwise the controller could select two nodes where
//! `maxUnavailable` allows one.
//!
//! # Lists, events and writes
//!
//! Resource versions are increasing numbers within one history of the API server. Kubernetes guarantees
//! this since 1.35 and has done so since etcd 3. A restored etcd starts another history, whose versions
//! are lower. So versions are compared only where both belong to the same history:
//!
//! 1. **A list replaces the cache**, whatever the versions and uids are. Objects that it lacks are
//!    removed. Lists are consistent reads, so a list has every write that was finished before the list
//!    was requested.
//! 2. **An event replaces its object.** The watch delivers all changes after the list, in order.
//! 3. **A write that was learned is unconfirmed** until the watch delivers its version or a later one of
//!    the same object. An older event does not undo it: the watch lags. A list undoes it, unless it was
//!    learned after the list was requested and its version is above that of the list: then the list is
//!    the older of the two. In all other cases the list has the write, or the history went back.
//! 4. **An unconfirmed write does not stay.** If the watch passes its version without delivering it, or
//!    does not deliver it within [`IDLE_LIMIT`](crate::watch::IDLE_LIMIT), then it is not part of this history, and the
//!    objects are listed again.

mod objects;
mod storage;
pub mod trim;

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use kube::{Resource, ResourceExt as _};
use tokio::sync::watch as channel;
use tracing::warn;

use self::{
    objects::{Objects, Source, version},
    storage::Storage,
};
use crate::{
    Api, Object, Shutdown,
    watch::{Config, Event, Relist, Unreadable, Watcher},
};

/// A change of one object.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// The object before the change; `None` if it is new.
    pub before: Option<&'a Arc<K>>,
    /// The object after the change; `None` if it was deleted.
    pub after: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// Returns the object after the change, or the last state of a deleted one.
    #[must_use]
    pub fn object(&self) -> Option<&'a Arc<K>> {
        self.after.or(self.before)
    }
}

/// A change in the decoding of an object.
#[derive(Clone, Copy, Debug)]
pub enum Decoding<'a> {
    /// The object cannot be decoded.
    Failed(&'a Arc<Unreadable>),
    /// The object can be decoded now, or was deleted.
    Resolved(&'a Arc<Unreadable>),
}

/// The state of the initial list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncState {
    /// No list has arrived yet.
    Pending,
    /// The API server does not serve the kind, or denies access to it.
    NoKind,
    /// The list has arrived in full.
    Synced,
}

type Listener<K> = Box<dyn Fn(Change<'_, K>) + Send + Sync>;
type UnreadableListener = Box<dyn Fn(Decoding<'_>) + Send + Sync>;

/// The objects of one kind by name, or by `<namespace>/<name>` if the kind is namespaced.
pub struct Cache<K> {
    objects: RwLock<Objects<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    unreadable_listeners: RwLock<Vec<UnreadableListener>>,
    sync: channel::Sender<SyncState>,
    trim: fn(&mut K),
    storage: Storage<K>,
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = *self.sync.borrow();
        f.debug_struct("Cache").field("sync", &sync).finish_non_exhaustive()
    }
}

impl<K: Object> Cache<K> {
    /// Creates an empty cache. `trim` removes the parts of an object that no reader needs.
    #[must_use]
    pub fn new(trim: fn(&mut K)) -> Self {
        Self {
            objects: RwLock::new(Objects::default()),
            listeners: RwLock::default(),
            unreadable_listeners: RwLock::default(),
            sync: channel::Sender::new(SyncState::Pending),
            trim,
            storage: Storage::Plain,
        }
    }

    /// Creates an empty cache that stores its objects compressed. Each read takes some microseconds
    /// more.
    #[must_use]
    pub fn compressed(trim: fn(&mut K)) -> Self {
        Self { storage: Storage::compressed(), ..Self::new(trim) }
    }

    /// Calls `listener` for every change from now on, and once for each object that is already cached.
    pub fn on_change(&self, listener: impl Fn(Change<'_, K>) + Send + Sync + 'static) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        for object in self.list() {
            listener(Change { before: None, after: Some(&object) });
        }
        listeners.push(Box::new(listener));
    }

    /// Calls `listener` for every object that cannot be decoded, once for each state, and when that is
    /// over.
    pub fn on_unreadable(&self, listener: impl Fn(Decoding<'_>) + Send + Sync + 'static) {
        let listeners = &self.unreadable_listeners;
        let mut listeners = listeners.write().unwrap_or_else(PoisonError::into_inner);
        for object in self.unreadable() {
            listener(Decoding::Failed(&object));
        }
        listeners.push(Box::new(listener));
    }

    /// Returns the object of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.read().get(name)
    }

    /// Returns all objects, ordered by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().list()
    }

    /// Returns the objects that exist and are not cached, because they cannot be decoded.
    #[must_use]
    pub fn unreadable(&self) -> Vec<Arc<Unreadable>> {
        self.read().unreadable()
    }

    /// Waits until the first list has arrived in full.
    pub async fn ready(&self) {
        self.wait_until(|sync| sync == SyncState::Synced).await;
    }

    /// Waits until the first list has arrived in full, or the API server has answered that it does not
    /// serve the kind.
    ///
    /// For kinds that are optional in a cluster. Objects that appear later are delivered as changes.
    pub async fn ready_or_absent(&self) {
        self.wait_until(|sync| sync != SyncState::Pending).await;
    }

    async fn wait_until(&self, holds: impl Fn(SyncState) -> bool) {
        let mut sync = self.sync.subscribe();
        // The sender is part of `self`, so it outlives this wait.
        drop(sync.wait_for(|sync| holds(*sync)).await);
    }

    /// Stores the result of a write, unless the watch has already delivered a later state.
    ///
    /// An object that is not cached was deleted while the response was in flight. It is not stored,
    /// because no event would remove it again; if it was recreated since, the watch delivers it.
    pub fn learn(&self, object: K) {
        self.put(object, Source::Write);
    }

    /// Stores an object that was just created, unless the watch has already delivered a later state.
    ///
    /// The cache then has the object before any other process is told of it. If the watch is past its
    /// resource version and the object is not cached, it has been deleted again.
    pub fn learn_new(&self, object: K) {
        self.put(object, Source::Create);
    }

    /// Runs the watch until shutdown. A failed watch continues by itself.
    pub async fn run(&self, api: Api<K>, config: Config, shutdown: &Shutdown) {
        self.run_as(api, config, shutdown).await;
    }

    /// Runs the watch with objects decoded as `W`, a type that skips unused members.
    ///
    /// An object that cannot be decoded is left out; see [`Self::unreadable`].
    pub async fn run_as<W: Object + Into<K>>(
        &self,
        api: Api<W>,
        config: Config,
        shutdown: &Shutdown,
    ) {
        let mut watcher = Watcher::new(&api, &config);
        loop {
            let event = tokio::select! {
                () = shutdown.requested() => return,
                event = watcher.next() => event,
            };
            let is_change =
                matches!(event, Event::Applied(_) | Event::Deleted(_) | Event::Bookmark(_));
            self.take::<W>(event);
            if is_change && self.read().has_lost_write() {
                warn!(kind = %K::kind(&()), "The watch did not deliver a write of this process");
                watcher.relist(Relist::Unconfirmed);
            }
            watcher.set_unreadable(self.read().unreadable_count());
        }
    }

    fn take<W: Object + Into<K>>(&self, event: Event) {
        match event {
            Event::ListStarted => self.write().start_list(),
            Event::Page(page, version) => {
                let version = version.parse().ok();
                for text in page.items() {
                    self.take_text::<W>(text, Source::List { version });
                }
                self.write().set_list_version(version);
            }
            Event::Listed => {
                let gone = self.write().finish_list();
                for object in gone {
                    self.notify(&Change { before: Some(&object), after: None });
                }
                self.sync.send_replace(SyncState::Synced);
            }
            Event::Applied(text) => self.take_text::<W>(text.json(), Source::Watch),
            Event::Deleted(text) => self.take_deleted::<W>(text.json()),
            Event::Bookmark(version) => self.write().set_watched(version.parse().ok()),
            Event::Failed(error) if error.is_no_kind() => {
                self.sync.send_if_modified(|sync| {
                    let is_news = *sync == SyncState::Pending;
                    *sync = if is_news { SyncState::NoKind } else { *sync };
                    is_news
                });
            }
            Event::Failed(_) => {}
        }
        let resolved = self.write().take_resolved();
        for object in &resolved {
            self.notify_decoding(Decoding::Resolved(object));
        }
    }

    fn take_deleted<W: Object + Into<K>>(&self, text: &str) {
        let (name, version, uid) = match W::decode(text) {
            Ok(object) => (key(&object), version(&object), object.meta().uid.clone()),
            Err(error) => {
                let gone = Unreadable::of::<W>(text, &error);
                (gone.key(), gone.version(), gone.uid)
            }
        };
        let mut objects = self.write();
        objects.set_watched(version);
        objects.resolve(&name);
        drop(objects);
        self.remove(&name, version, uid.as_deref());
    }

    fn take_text<W: Object + Into<K>>(&self, text: &str, source: Source) {
        let error = match W::decode(text) {
            Ok(object) => return self.put(object.into(), source),
            Err(error) => error,
        };
        let unreadable = Arc::new(Unreadable::of::<W>(text, &error));
        if source == Source::Watch {
            self.write().set_watched(unreadable.version());
        }
        if let Some(rest) = W::salvage(&unreadable) {
            self.put(rest.into(), source);
        } else {
            self.remove(&unreadable.key(), unreadable.version(), unreadable.uid.as_deref());
        }
        if !self.write().set_unreadable(&unreadable, source) {
            return;
        }
        let Unreadable { kind, fault, .. } = &*unreadable;
        let name = unreadable.key();
        warn!(kind, name, fault, "Left out an object that cannot be decoded");
        self.notify_decoding(Decoding::Failed(&unreadable));
    }

    fn notify_decoding(&self, change: Decoding<'_>) {
        let listeners = &self.unreadable_listeners;
        for listener in listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(change);
        }
    }

    fn put(&self, mut object: K, source: Source) {
        (self.trim)(&mut object);
        let name = key(&object);
        let after = Arc::new(object);
        let before = {
            let mut objects = self.write();
            let before = objects.get(&name);
            if !objects.accepts(&name, before.as_deref(), &after, source) {
                return;
            }
            objects.insert(name, self.storage.store(&after));
            before
        };
        self.notify(&Change { before: before.as_ref(), after: Some(&after) });
    }

    /// Removes the object of that name, unless it is a successor of the one that was deleted.
    fn remove(&self, name: &str, version: Option<u64>, uid: Option<&str>) {
        let gone = self.write().remove(name, version, uid);
        if gone.is_some() {
            self.notify(&Change { before: gone.as_ref(), after: None });
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, change: &Change<'_, K>) {
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(Change { before: change.before, after: change.after });
        }
    }
}

/// Returns the name under which a cache has the object.
pub fn key<K: Resource>(object: &K) -> String {
    match &object.meta().namespace {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

#[cfg(test)]
mod tests;
