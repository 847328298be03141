//! Watches: events arrive as text and are decoded one by one, so that one watch serves all kinds.

use futures::{StreamExt as _, stream::BoxStream};
use kube::runtime::{
    WatchStreamExt as _,
    watcher::{self, Error, Event, watch_object, watcher},
};

use crate::api::{Api, Object, Raw};

/// Returns the events of a watch. It is restarted with a backoff after each error.
pub(crate) fn events(
    api: kube::Api<Raw>,
    config: watcher::Config,
) -> BoxStream<'static, Result<Event<Raw>, Error>> {
    watcher(api, config).default_backoff().boxed()
}

/// Decodes the object of an event.
pub(crate) fn decode<K: Object>(event: Event<Raw>) -> serde_json::Result<Event<K>> {
    Ok(match event {
        Event::Init => Event::Init,
        Event::InitApply(raw) => Event::InitApply(K::decode(raw.json())?),
        Event::InitDone => Event::InitDone,
        Event::Apply(raw) => Event::Apply(K::decode(raw.json())?),
        Event::Delete(raw) => Event::Delete(K::decode(raw.json())?),
    })
}

/// Returns the states of one object, `None` while it does not exist. The watch is restarted with a
/// backoff after each error.
#[must_use]
pub fn object<K: Object>(api: &Api<K>, name: &str) -> BoxStream<'static, Result<Option<K>, Error>> {
    let states = watch_object(api.raw(), name).default_backoff();
    let decoded = states.map(|state| match state? {
        Some(raw) => match K::decode(raw.json()) {
            Ok(object) => Ok(Some(object)),
            Err(error) => Err(Error::WatchFailed(kube::Error::SerdeError(error))),
        },
        None => Ok(None),
    });
    decoded.boxed()
}
