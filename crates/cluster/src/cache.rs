//! A local copy of the objects of one kind, kept up by one watch and shared by all who read it.
//!
//! Listeners are called for every change with the object before and after, in the order of changes,
//! and only put names into queues. A write can be fed back with [`Cache::learn`], so that the next
//! decision sees it even if the watch is late: otherwise two nodes could be chosen where one may be.

mod keep;
pub mod trim;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard},
};

use futures::TryStreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;
use tracing::{info, warn};

use self::keep::{Keeper, Kept};
use crate::{CallError, Shutdown, error::Refused, report};

/// One change of one object.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// The object before; `None` if it is new.
    pub before: Option<&'a Arc<K>>,
    /// The object now; `None` if it is gone.
    pub after: Option<&'a Arc<K>>,
}

impl<'a, K> Change<'a, K> {
    /// The object, now or as it last was.
    #[must_use]
    pub fn object(&self) -> Option<&'a Arc<K>> {
        self.after.or(self.before)
    }
}

/// Who tells of a state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The server's watch, which tells of everything in order.
    Watch,
    /// The answer to a write, which may come after the watch has told of more.
    Write,
    /// The answer to a create, which may come before the watch tells of it.
    Create,
}

/// How much is known of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    /// Nothing: no list has arrived.
    None,
    /// That the server has no such kind, or none for us.
    NoKind,
    /// All of them.
    All,
}

type Listener<K> = Box<dyn Fn(Change<'_, K>) + Send + Sync>;

/// The objects of one kind, by name; `<namespace>/<name>` where the kind has namespaces.
pub struct Cache<K> {
    objects: RwLock<Objects<K>>,
    listeners: RwLock<Vec<Listener<K>>>,
    knowledge: watch::Sender<Knowledge>,
    trim: fn(&mut K),
    keeper: Keeper<K>,
}

struct Objects<K> {
    by_name: BTreeMap<String, Kept<K>>,
    /// The latest version that the watch has told of.
    told: u64,
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let knowledge = *self.knowledge.borrow();
        f.debug_struct("Cache").field("knowledge", &knowledge).finish_non_exhaustive()
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    /// An empty one. `trim` takes off every object what nobody reads.
    #[must_use]
    pub fn new(trim: fn(&mut K)) -> Self {
        Self {
            objects: RwLock::new(Objects { by_name: BTreeMap::new(), told: 0 }),
            listeners: RwLock::default(),
            knowledge: watch::Sender::new(Knowledge::None),
            trim,
            keeper: Keeper::Open,
        }
    }

    /// One that keeps its objects in few bytes, and takes some microseconds more for each look at one.
    #[must_use]
    pub fn packed(trim: fn(&mut K)) -> Self
    where
        K: Serialize,
    {
        Self { keeper: Keeper::packer(), ..Self::new(trim) }
    }

    /// Has `listener` called for every change from now on, and for what is there as if it were new.
    pub fn on_change(&self, listener: impl Fn(Change<'_, K>) + Send + Sync + 'static) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        for object in self.list() {
            listener(Change { before: None, after: Some(&object) });
        }
        listeners.push(Box::new(listener));
    }

    /// The object of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<K>> {
        self.read().by_name.get(name).map(Kept::open)
    }

    /// All objects, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().by_name.values().map(Kept::open).collect()
    }

    /// Waits until the first list has arrived in full.
    pub async fn ready(&self) {
        self.wait_until(|knowledge| knowledge == Knowledge::All).await;
    }

    /// Waits until the first list has arrived in full, or the server has said that there is none.
    ///
    /// For kinds that a cluster need not have. One that appears later is told of like any change.
    pub async fn ready_or_absent(&self) {
        self.wait_until(|knowledge| knowledge != Knowledge::None).await;
    }

    async fn wait_until(&self, holds: impl Fn(Knowledge) -> bool) {
        let mut knowledge = self.knowledge.subscribe();
        // The sender is part of `self`, so it is not gone while somebody waits.
        drop(knowledge.wait_for(|knowledge| holds(*knowledge)).await);
    }

    /// Takes in what a write gave back, unless the watch has told of something newer already.
    ///
    /// One that is not there was deleted while the answer was under way: nobody would ever take it out
    /// again, so it stays away. If it was made anew since, the watch tells of that.
    pub fn learn(&self, object: K) {
        self.put(object, Source::Write);
    }

    /// Takes in an object that was just made, unless the watch has told of something newer already.
    ///
    /// So who hears of it from us can be sure that we know it. If the watch is past its version and it
    /// is not there, then it was deleted again meanwhile.
    pub fn learn_new(&self, object: K) {
        self.put(object, Source::Create);
    }

    /// Keeps the copy up until told to stop; a broken watch is taken up again after a pause.
    pub async fn run(&self, api: Api<K>, config: watcher::Config, shutdown: &Shutdown) {
        self.run_as(api, config, shutdown).await;
    }

    /// The same with objects that arrive as `W`, which does not even read what nobody needs.
    pub async fn run_as<W>(&self, api: Api<W>, config: watcher::Config, shutdown: &Shutdown)
    where
        W: Resource<DynamicType = ()> + Into<K>,
        W: Clone + fmt::Debug + DeserializeOwned + Send + 'static,
    {
        let mut events = Box::pin(watcher::watcher(api, config).default_backoff());
        let mut listed: Option<Vec<String>> = None;
        loop {
            let event = tokio::select! {
                () = shutdown.requested() => return,
                event = events.try_next() => event,
            };
            match event {
                Ok(Some(event)) => self.take(event, &mut listed),
                Ok(None) => return,
                Err(error) => {
                    if tell_of(&K::kind(&()), error) == Interrupted::NoKind {
                        self.knowledge.send_if_modified(|knowledge| {
                            let is_news = *knowledge == Knowledge::None;
                            *knowledge = if is_news { Knowledge::NoKind } else { *knowledge };
                            is_news
                        });
                    }
                }
            }
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
                self.knowledge.send_replace(Knowledge::All);
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
            let before = objects.by_name.get(&name).map(Kept::open);
            let is_news = match (&before, source) {
                (None, Source::Watch) => true,
                (None, Source::Write) => false,
                (None, Source::Create) => version(&*after).is_some_and(|made| made > objects.told),
                (Some(known), Source::Write) if known.meta().uid != after.meta().uid => false,
                (Some(known), _) => is_newer(&*after, &**known),
            };
            if source == Source::Watch {
                objects.told = objects.told.max(version(&*after).unwrap_or_default());
            }
            if !is_news {
                return;
            }
            objects.by_name.insert(name, self.keeper.keep(&after));
            before
        };
        self.tell(&Change { before: before.as_ref(), after: Some(&after) });
    }

    /// Takes out what is kept under that name, unless it is another than the one that was deleted.
    fn remove(&self, name: &str, deleted: Option<&K>) {
        let gone = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            objects.told = objects.told.max(deleted.and_then(version).unwrap_or_default());
            let known = objects.by_name.get(name).map(Kept::open);
            let is_another = |(gone, known): (&K, &Arc<K>)| gone.meta().uid != known.meta().uid;
            if deleted.zip(known.as_ref()).is_some_and(is_another) {
                return;
            }
            objects.by_name.remove(name);
            known
        };
        if gone.is_some() {
            self.tell(&Change { before: gone.as_ref(), after: None });
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

    fn tell(&self, change: &Change<'_, K>) {
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(Change { before: change.before, after: change.after });
        }
    }
}

/// What the interruption of a watch comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupted {
    /// The server has no such kind, or none for us.
    NoKind,
    /// It may pass at any time.
    ForNow,
}

/// Says why a watch is interrupted, in the server's own words.
fn tell_of(kind: &str, error: watcher::Error) -> Interrupted {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    let error = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => error,
        WatchError(status) => kube::Error::Api(status),
        NoResourceVersion => {
            warn!(kind, "The server lists objects without a resource version");
            return Interrupted::ForNow;
        }
    };
    let error = CallError::from(error);
    if error.is_not_found() {
        // Another process may be about to install it.
        info!(kind, "The kind is not there yet");
        return Interrupted::NoKind;
    }
    warn!(kind, error = report::chain(&error), "Cannot watch");
    match error.refused() {
        Some(Refused::Other(403)) => Interrupted::NoKind,
        _ => Interrupted::ForNow,
    }
}

/// Under which name an object is kept.
pub fn key<K: Resource>(object: &K) -> String {
    match &object.meta().namespace {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Whether `new` is a later state than `known`.
///
/// Resource versions of one kind are numbers that grow, which Kubernetes promises since 1.35 and has
/// kept ever since etcd 3. Another uid is another object of the same name, hence newer.
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
