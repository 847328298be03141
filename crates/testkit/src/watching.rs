//! Waiting for objects to be as a test wants them: every change is looked at, and a watch that breaks is
//! taken up again.

use std::fmt::Debug;

use anyhow::Context as _;
use futures::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watch_object, watcher},
    },
};
use serde::de::DeserializeOwned;

use crate::PATIENCE;

/// What can be watched.
pub trait Watched: Resource + Clone + DeserializeOwned + Debug + Send + 'static {}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Watched for K {}

/// Looks at every object as it is and as it changes until `look` has found something; none if it never
/// does.
pub async fn find<K: Watched, T>(api: Api<K>, mut look: impl FnMut(K) -> Option<T>) -> Option<T> {
    let looking = async {
        let changes = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
        let mut changes = std::pin::pin!(changes);
        loop {
            if let Some(found) = changes.next().await?.ok().and_then(&mut look) {
                return Some(found);
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.ok().flatten()
}

/// Waits until the object `name` is as it should be; none is one that is not there.
pub async fn until<K: Watched>(
    api: Api<K>,
    name: &str,
    what: &str,
    mut holds: impl FnMut(Option<&K>) -> bool,
) -> anyhow::Result<Option<K>> {
    let mut last = None;
    let looking = async {
        let mut changes = std::pin::pin!(watch_object(api, name).default_backoff());
        while let Some(change) = changes.next().await {
            match change {
                Ok(object) if holds(object.as_ref()) => return Some(object),
                other => last = Some(other),
            }
        }
        None
    };
    let found = tokio::time::timeout(PATIENCE, looking).await.ok().flatten();
    found.with_context(|| format!("waited {PATIENCE:?} in vain for {what}; {name}: {last:#?}"))
}
