//! A local copy of the objects of one kind, kept up by one watch and shared by all who read it.
//!
//! Listeners are called for every change with the object before and after, in the order of changes,
//! and only put names into queues. A write can be fed back with [`Cache::learn`], so that the next
//! decision sees it even if the watch is late: otherwise two nodes could be chosen where one may be.

pub mod trim;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use futures::TryStreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{CallError, Shutdown, report};

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
}

type Listener<K> = Box<dyn Fn(Change<'_, K>) + Send + Sync>;

/// The objects of one kind, by name; `<namespace>/<name>` where the kind has namespaces.
pub struct Cache<K> {
    objects: RwLock<BTreeMap<String, Arc<K>>>,
    listeners: RwLock<Vec<Listener<K>>>,
    complete: watch::Sender<bool>,
    trim: fn(&mut K),
}

impl<K> fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("complete", &*self.complete.borrow()).finish_non_exhaustive()
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
            objects: RwLock::default(),
            listeners: RwLock::default(),
            complete: watch::Sender::new(false),
            trim,
        }
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
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All objects, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.values().cloned().collect()
    }

    /// Waits until the first list has arrived in full.
    pub async fn ready(&self) {
        let mut complete = self.complete.subscribe();
        // The sender is part of `self`, so it is not gone while somebody waits.
        drop(complete.wait_for(|complete| *complete).await);
    }

    /// Takes in what a write gave back, unless the watch has told of something newer already.
    ///
    /// One that is not there was deleted while the answer was under way: nobody would ever take it out
    /// again, so it stays away. If it was made anew since, the watch tells of that.
    pub fn learn(&self, object: K) {
        self.put(object, Source::Write);
    }

    /// Takes in an object that was just made, unless the watch has told of something newer already.
    pub fn learn_new(&self, object: K) {
        self.put(object, Source::Watch);
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
                Err(error) => tell_of(&K::kind(&()), error),
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
                self.complete.send_replace(true);
            }
            Event::Apply(object) => self.put(object.into(), Source::Watch),
            Event::Delete(object) => self.remove(&key::<K>(&object.into())),
        }
    }

    fn put(&self, mut object: K, source: Source) {
        (self.trim)(&mut object);
        let name = key(&object);
        let after = Arc::new(object);
        let before = {
            let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
            let is_news = match (objects.get(&name), source) {
                (None, Source::Watch) => true,
                (None, Source::Write) => false,
                (Some(known), Source::Write) if known.meta().uid != after.meta().uid => false,
                (Some(known), _) => is_newer(&*after, &**known),
            };
            if !is_news {
                return;
            }
            objects.insert(name, after.clone())
        };
        self.tell(&Change { before: before.as_ref(), after: Some(&after) });
    }

    fn remove(&self, name: &str) {
        let gone = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if gone.is_some() {
            self.tell(&Change { before: gone.as_ref(), after: None });
        }
    }

    fn keep_only(&self, listed: &[String]) {
        let known: Vec<String> = {
            let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
            objects.keys().filter(|name| listed.binary_search(name).is_err()).cloned().collect()
        };
        for name in known {
            self.remove(&name);
        }
    }

    fn tell(&self, change: &Change<'_, K>) {
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(Change { before: change.before, after: change.after });
        }
    }
}

/// Says why a watch is interrupted, in the server's own words.
fn tell_of(kind: &str, error: watcher::Error) {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    let error = match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => error,
        WatchError(status) => kube::Error::Api(status),
        NoResourceVersion => {
            warn!(kind, "The server lists objects without a resource version");
            return;
        }
    };
    let error = CallError::from(error);
    if error.is_not_found() {
        // Another process may be about to install it.
        info!(kind, "The kind is not there yet");
        return;
    }
    warn!(kind, error = report::chain(&error), "Cannot watch");
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
    let number = |object: &K| object.meta().resource_version.as_ref()?.parse::<u64>().ok();
    if new.meta().uid != known.meta().uid {
        return true;
    }
    match (number(new), number(known)) {
        (Some(new), Some(known)) => new > known,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
