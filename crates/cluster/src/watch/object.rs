//! The states of one object.

use futures::{StreamExt as _, stream, stream::BoxStream};
use tokio::time::Instant;

use super::{Config, Event, Unreadable, WatchError, Watcher};
use crate::{Api, Object};

/// Returns the states of one object. Never ends: a failed watch continues by itself.
///
/// A list replaces all that was known before, so the object is delivered after each list and whatever
/// its resource version is.
#[must_use]
pub fn object<K: Object>(
    api: &Api<K>,
    name: &str,
    config: Config,
) -> BoxStream<'static, Result<Observed<K>, WatchError>> {
    let config = config.named(name);
    let watcher = Watcher::new(api, &config);
    let states = States { watcher, listed: None, list_requested: Instant::now() };
    stream::unfold(states, |mut states| async move {
        let state = states.next().await;
        Some((state, states))
    })
    .boxed()
}

/// An observed state of an object.
#[derive(Clone, Debug)]
pub struct Observed<K> {
    /// The object; `None` if it does not exist.
    pub object: Option<K>,
    /// Time at which the last list was requested. The state is not older, and its resource version is
    /// comparable only with others of the same list.
    pub list_requested: Instant,
}

struct States<K> {
    watcher: Watcher,
    list_requested: Instant,
    /// Object of the list in progress.
    listed: Option<Result<K, WatchError>>,
}

impl<K: Object> States<K> {
    async fn next(&mut self) -> Result<Observed<K>, WatchError> {
        let object = self.next_object().await?;
        Ok(Observed { object, list_requested: self.list_requested })
    }

    async fn next_object(&mut self) -> Result<Option<K>, WatchError> {
        loop {
            match self.watcher.next().await {
                Event::ListStarted => {
                    self.list_requested = Instant::now();
                    self.listed = None;
                }
                Event::Page(page, _) => {
                    if let Some(text) = page.items().first() {
                        self.listed = Some(decode(text));
                    }
                }
                Event::Listed => return self.listed.take().transpose(),
                Event::Applied(text) => return decode(text.json()).map(Some),
                Event::Deleted(_) => return Ok(None),
                Event::Bookmark(_) => {}
                Event::Failed(error) => return Err(error),
            }
        }
    }
}

fn decode<K: Object>(text: &str) -> Result<K, WatchError> {
    K::decode(text).map_err(|error| {
        let fault = Unreadable::of::<K>(text, &error);
        WatchError::Object { fault: fault.fault }
    })
}
