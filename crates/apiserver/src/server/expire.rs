//! Removes events an hour after they were last seen, as Kubernetes does.

use std::sync::{Arc, atomic::Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Server,
    steps::{Step, Steps},
};
use crate::object;

/// Lifetime of an event after it was last seen, in seconds.
const EVENT_LIFETIME: i64 = 3600;

/// Interval between two removals, in seconds.
const EXPIRY_INTERVAL: i64 = 60;

/// Name of the collection of events.
const EVENTS: &str = "events";

impl Server {
    /// Removes expired events, if the interval has passed.
    pub(super) async fn expire_events(&self) {
        let now = self.clock.now().as_second();
        let last = self.expired_at.load(Ordering::Relaxed);
        if now < last.saturating_add(EXPIRY_INTERVAL) {
            return;
        }
        let mine =
            self.expired_at.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        let Some(events) = self.catalog.find("", "v1", EVENTS).filter(|_| mine.is_ok()) else {
            return;
        };
        let (all, _) = self.store.list(EVENTS, None, None);
        let mut steps = Steps::default();
        for event in all.iter().filter(|event| last_seen(&event.value()) < now - EVENT_LIFETIME) {
            // Another request may have removed or updated the event: both are fine.
            let same = json!({"preconditions": {"resourceVersion": event.version.to_string()}});
            steps.add(Step::Delete(Arc::clone(&events), event.key(), same));
        }
        self.run(steps).await;
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
