//! Caches: local copies of the objects of one kind, kept up to date by one watch.
//!
//! Listeners are called for every change with the object before and after, in the order of changes,
//! and only enqueue names. The result of a write can be stored with [`Cache::learn`], so that the
//! next decision sees it even if the watch lags: otherwise the controller could select two nodes where
//! `maxUnavailable` allows one.

mod storage;
pub mod trim;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use futures::TryStreamExt as _;
use kube::{
    Resource, ResourceExt as _,
    runtime::watcher::{self, Event},
};
use tokio::sync::watch;
use tracing::{info, warn};

use self::storage::{Storage, Stored};
use crate::{Api, CallError, Object, Shutdown, error::Rejection, report, watch as watching};

/// Pause before a watch is restarted that delivered an object which cannot be decoded.
const DECODE_RETRY: Duration = Duration::from_secs(5);

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

/// The source of an object's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The watch, which delivers all states in order.
    Watch,
    /// The response to a write, which may arrive after the watch has delivered a later state.
    Write,
    /// The response to a create, which may arrive before the watch delivers the object.
    Create,
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

/// The objects of one kind by name, or by `<namespace>/<name>` if the kind is namespaced.
pub struct Cache<K> {
    objects: RwLock<Objects<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    sync: watch::Sender<SyncState>,
    trim: fn(&mut K),
    storage: Storage<K>,
}

struct Objects<K> {
    by_name: BTreeMap<String, Stored<K>>,
    /// Latest resource version that the watch has delivered.
    watched: u64,
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
            objects: RwLock::new(Objects { by_name: BTreeMap::new(), watched: 0 }),
            listeners: RwLock::default(),
            sync: watch::Sender::new(SyncState::Pending),
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

    /// Returns the object of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.read().by_name.get(name).map(Stored::load)
    }

    /// Returns all objects, ordered by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().by_name.values().map(Stored::load).collect()
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

    /// Runs the watch until shutdown. A failed watch is restarted with a backoff.
    pub async fn run(&self, api: Api<K>, config: watcher::Config, shutdown: &Shutdown) {
        self.run_as(api, config, shutdown).await;
    }

    /// Runs the watch with objects decoded as `W`, a type that skips unused members.
    ///
    /// An object that cannot be decoded fails the whole watch, as any other error does: the cache keeps
    /// its last state and does not become ready, so that no decision is made without the object.
    pub async fn run_as<W: Object + Into<K>>(
        &self,
        api: Api<W>,
        config: watcher::Config,
        shutdown: &Shutdown,
    ) {
        let kind = K::kind(&());
        loop {
            let mut events = watching::events(api.raw(), config.clone());
            let mut listed: Option<Vec<String>> = None;
            let undecodable = loop {
                let event = tokio::select! {
                    () = shutdown.requested() => return,
                    event = events.try_next() => event,
                };
                match event {
                    Ok(Some(event)) => match watching::decode::<W>(event) {
                        Ok(event) => self.take(event, &mut listed),
                        Err(error) => break error,
                    },
                    Ok(None) => return,
                    Err(error) => self.failed(&kind, error),
                }
            };
            warn!(%kind, error = report::chain(&undecodable), "Failed to decode a watched object");
            tokio::select! {
                () = shutdown.requested() => return,
                () = tokio::time::sleep(DECODE_RETRY) => {}
            }
        }
    }

    fn failed(&self, kind: &str, error: watcher::Error) {
        if log_failure(kind, error) == Failure::NoKind {
            self.sync.send_if_modified(|sync| {
                let is_news = *sync == SyncState::Pending;
                *sync = if is_news { SyncState::NoKind } else { *sync };
                is_news
            });
        }
    }

    fn take(&self, event: Event<impl Into<K>>, listed: &mut Option<Vec<String>>) {
        match event {
            Event::Init => *listed = Some(Vec::new()),
            Event::InitApply(object) => {
                let object = object.into();
                if let Some(listed) = listed {
                    listed.push(key(&object));
                }
                self.put(object, Source::Watch);
            }
            Event::InitDone => {
                if let Some(mut listed) = listed.take() {
                    listed.sort_unstable();
                    self.keep_only(&listed);
                }
                self.sync.send_replace(SyncState::Synced);
            }
            Event::Apply(object) => self.put(object.into(), Source::Watch),
            Event::Delete(object) => {
                let object = object.into();
                self.remove(&key(&object), Some(&object));
            }
        }
    }

    fn put(&self, mut object: K, source: Source) {
        (self.trim)(&mut object);
        let name = key(&object);
        let after = Arc::new(object);
        let before = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            let before = objects.by_name.get(&name).map(Stored::load);
            let is_news = match (&before, source) {
                (None, Source::Watch) => true,
                (None, Source::Write) => false,
                (None, Source::Create) => {
                    version(&*after).is_some_and(|made| made > objects.watched)
                }
                (Some(known), Source::Write) if known.meta().uid != after.meta().uid => false,
                (Some(known), _) => is_newer(&*after, &**known),
            };
            if source == Source::Watch {
                objects.watched = objects.watched.max(version(&*after).unwrap_or_default());
            }
            if !is_news {
                return;
            }
            objects.by_name.insert(name, self.storage.store(&after));
            before
        };
        self.notify(&Change { before: before.as_ref(), after: Some(&after) });
    }

    /// Removes the object of that name, unless it is a successor of the one that was deleted.
    fn remove(&self, name: &str, deleted: Option<&K>) {
        let gone = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            objects.watched = objects.watched.max(deleted.and_then(version).unwrap_or_default());
            let known = objects.by_name.get(name).map(Stored::load);
            let is_another = |(gone, known): (&K, &Arc<K>)| gone.meta().uid != known.meta().uid;
            if deleted.zip(known.as_ref()).is_some_and(is_another) {
                return;
            }
            objects.by_name.remove(name);
            known
        };
        if gone.is_some() {
            self.notify(&Change { before: gone.as_ref(), after: None });
        }
    }

    fn keep_only(&self, listed: &[String]) {
        let known: Vec<String> = {
            let objects = self.read();
            let is_gone = |name: &&String| listed.binary_search(name).is_err();
            objects.by_name.keys().filter(is_gone).cloned().collect()
        };
        for name in known {
            self.remove(&name, None);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, change: &Change<'_, K>) {
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(Change { before: change.before, after: change.after });
        }
    }
}

/// The meaning of a failed watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The API server does not serve the kind, or denies access to it.
    NoKind,
    /// The watch may succeed at any time.
    Temporary,
}

/// Logs the failure of a watch in the API server's own words.
fn log_failure(kind: &str, error: watcher::Error) -> Failure {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    let error = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => error,
        WatchError(status) => kube::Error::Api(status),
        NoResourceVersion => {
            warn!(kind, "The API server listed objects without a resource version");
            return Failure::Temporary;
        }
    };
    let error = CallError::from(error);
    if error.is_not_found() {
        // The operator may be about to create the CRD.
        info!(kind, "The API server does not serve the kind yet");
        return Failure::NoKind;
    }
    warn!(kind, error = report::chain(&error), "Failed to watch");
    match error.rejection() {
        Some(Rejection::Other(403)) => Failure::NoKind,
        _ => Failure::Temporary,
    }
}

/// Returns the name under which a cache has the object.
pub fn key<K: Resource>(object: &K) -> String {
    match &object.meta().namespace {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Returns true if `new` is a later state than `known`.
///
/// Resource versions of one kind are increasing numbers, which Kubernetes guarantees since 1.35 and
/// has had since etcd 3. Another uid is another object of the same name, hence newer.
fn is_newer<K: Resource>(new: &K, known: &K) -> bool {
    if new.meta().uid != known.meta().uid {
        return true;
    }
    match (version(new), version(known)) {
        (Some(new), Some(known)) => new > known,
        _ => true,
    }
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests;
