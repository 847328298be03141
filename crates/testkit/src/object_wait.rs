//! Waits until objects reach a state. Every change is checked, and a broken watch is resumed.

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

/// A kind that can be watched.
pub trait Watched: Resource + Clone + DeserializeOwned + Debug + Send + 'static {}

impl<K: Resource + Clone + DeserializeOwned + Debug + Send + 'static> Watched for K {}

/// Passes all existing and changed objects to `look` until it returns a value. Returns `None` on
/// timeout.
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

/// Waits until the object `name` satisfies `holds`, which gets `None` if the object does not exist.
pub async fn wait_until<K: Watched>(
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
    found.with_context(|| {
        format!("timed out after {PATIENCE:?} waiting for {what}; {name}: {last:#?}")
    })
}
