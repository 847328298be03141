//! Notes as Kubernetes events.
//!
//! A note that is repeated is counted on its event. Only the very same sentence counts as repeated:
//! two nodes that start one after the other are two events, which the recorder of the client library
//! would make one of.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::events::v1::{Event, EventSeries},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::label;
use serde_json::json;
use tokio::time::Instant;

use super::{Level, Note};
use crate::{CallError, Clock};

/// After so long without being repeated, a sentence is news again.
const MEMORY: Duration = Duration::from_mins(6);

/// Longest text that the API server takes in an event.
const LONGEST: usize = 1024;

/// Object, reason and sentence.
type Key = (String, String, String);

#[derive(Clone, Debug)]
struct Known {
    name: String,
    count: i32,
    last: Instant,
}

/// Writes events.
#[derive(Clone)]
pub(super) struct Events {
    client: Client,
    component: Arc<str>,
    clock: Clock,
    known: Arc<Mutex<HashMap<Key, Known>>>,
}

impl Events {
    pub(super) fn new(client: Client, component: Arc<str>, clock: Clock) -> Self {
        Self { client, component, clock, known: Arc::default() }
    }

    pub(super) async fn write(&self, note: &Note) -> Result<(), CallError> {
        let namespace = note.object.namespace.as_deref().unwrap_or(label::NAMESPACE);
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let key = key(note);
        let Some(known) = self.recall(&key) else {
            let event = self.event(note, namespace);
            let created = api.create(&PostParams::default(), &event).await?;
            self.remember(key, created.metadata.name.unwrap_or_default(), 1);
            return Ok(());
        };
        let count = known.count.saturating_add(1);
        let last_observed_time = MicroTime(self.clock.now());
        let patch = json!({"series": EventSeries { count, last_observed_time }});
        match api.patch(&known.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {
                self.remember(key, known.name, count);
                Ok(())
            }
            Err(error) => {
                // Events are removed after a while; the next one starts anew.
                self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                Err(error.into())
            }
        }
    }

    fn event(&self, note: &Note, namespace: &str) -> Event {
        let now = self.clock.now();
        let object = note.object.name.as_deref().unwrap_or_default();
        let name = format!("{object}.{:x}{:08x}", now.as_nanosecond(), fastrand::u32(..));
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(
                match note.level {
                    Level::Normal => "Normal",
                    Level::Warning => "Warning",
                }
                .to_owned(),
            ),
            reason: Some(note.reason.to_string()),
            action: Some(note.reason.to_string()),
            note: Some(shortened(&note.text)),
            regarding: Some(note.object.clone()),
            reporting_controller: Some(self.component.to_string()),
            reporting_instance: Some(self.component.to_string()),
            ..Event::default()
        }
    }

    fn recall(&self, key: &Key) -> Option<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, event| event.last.elapsed() < MEMORY);
        known.get(key).cloned()
    }

    fn remember(&self, key: Key, name: String, count: i32) {
        let event = Known { name, count, last: Instant::now() };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, event);
    }
}

fn key(note: &Note) -> Key {
    let object = &note.object;
    let identity = [&object.kind, &object.namespace, &object.name, &object.uid]
        .map(|part| part.as_deref().unwrap_or_default());
    (identity.join("/"), note.reason.to_string(), note.text.clone())
}

fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST - '…'.len_utf8());
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_for_an_event_is_cut_between_letters() {
        let long = "ä".repeat(600);
        let short = shortened(&long);
        assert!(short.len() <= LONGEST && short.ends_with('…'), "{}", short.len());
        assert_eq!(shortened("plain"), "plain");
    }
}
