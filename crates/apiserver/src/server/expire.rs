//! Events are forgotten after a while, as Kubernetes does, so that they do not pile up.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Server;
use crate::{object, store::Key};

/// How long an event is kept after it was last seen, in seconds.
const KEPT: i64 = 3600;

/// How often old events are looked for, in seconds.
const EVERY: i64 = 60;

/// Where events are kept.
const EVENTS: &str = "events";

impl Server {
    /// Removes old events, when it is time to look for them.
    pub(super) async fn expire_events(&self) {
        let now = self.clock.now().as_second();
        let last = self.expired_at.load(Ordering::Relaxed);
        if now < last.saturating_add(EVERY) {
            return;
        }
        let mine =
            self.expired_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        let Some(events) = self.catalog.find("", "v1", EVENTS).filter(|_| mine.is_ok()) else {
            return;
        };
        let (all, _) = self.store.list(EVENTS, None, None);
        for event in all.iter().filter(|event| last_seen(&event.value) < now - KEPT) {
            let key = Key::new(object::namespace(&event.value), object::name(&event.value));
            // Somebody else may have removed it, or seen it again: both are fine.
            let same = json!({"preconditions": {"resourceVersion": event.version.to_string()}});
            let _ = self.remove(&events, &key, &same, false).await;
        }
    }
}

fn last_seen(event: &Value) -> i64 {
    let times: [&[&str]; 4] = [
        &["metadata", "creationTimestamp"],
        &["lastTimestamp"],
        &["eventTime"],
        &["series", "lastObservedTime"],
    ];
    let seconds = times
        .iter()
        .filter_map(|path| object::text(event, path).parse::<Timestamp>().ok())
        .map(Timestamp::as_second);
    seconds.max().unwrap_or(0)
}
