//! Kubernetes events for notes.
//!
//! They are core events, as those of the reference, with the times and the count that `kubectl get
//! events --sort-by=.lastTimestamp` and dashboards read. A repeated note increments the count of its
//! event. Only an identical text is a repetition: two nodes that start one after the other are two
//! events, which kube's recorder would merge.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use super::{Level, Note};
use crate::{Api, CallError, Clock, apply, client::namespace};

/// Time after which a repeated note is a new event.
const SERIES_WINDOW: Duration = Duration::from_mins(6);

/// Maximum length of an event's note, by the API server's validation.
const MAX_NOTE: usize = 1024;

/// Object, reason and text of a note.
type Key = (String, String, String);

#[derive(Clone, Debug)]
struct KnownEvent {
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
    known: Arc<Mutex<HashMap<Key, KnownEvent>>>,
}

impl Events {
    pub(super) fn new(client: Client, component: Arc<str>, clock: Clock) -> Self {
        Self { client, component, clock, known: Arc::default() }
    }

    pub(super) async fn write(&self, note: &Note) -> Result<(), CallError> {
        // Compat: events about cluster-scoped objects are in the operator's namespace
        // (pkg/controller/common/namespaced_event_recorder.go).
        let own = namespace(&self.client);
        let namespace = note.object.namespace.as_deref().unwrap_or(own);
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let key = key(note);
        if let Some(known) = self.find_recent(&key) {
            match self.repeat(&api, &known).await {
                Ok(count) => {
                    self.record(key, known.name, count);
                    return Ok(());
                }
                // The API server deletes events after a while, and a restored one may not have them.
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                    return Err(error);
                }
            }
        }
        let event = self.event(note, namespace);
        // Names are unique: if the name exists, the answer to the first attempt was lost.
        apply::create(&api, &event).await?;
        self.record(key, event.metadata.name.unwrap_or_default(), 1);
        Ok(())
    }

    /// Increments the count of an event and returns it.
    async fn repeat(&self, api: &Api<Event>, known: &KnownEvent) -> Result<i32, CallError> {
        let count = known.count.saturating_add(1);
        let patch = json!({"count": count, "lastTimestamp": Time(self.clock.now())});
        api.patch(&known.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(count)
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
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            type_: Some(
                match note.level {
                    Level::Normal => "Normal",
                    Level::Warning => "Warning",
                }
                .to_owned(),
            ),
            reason: Some(note.reason.to_string()),
            message: Some(truncated(&note.text)),
            involved_object: ObjectReference {
                namespace: Some(namespace.to_owned()),
                ..note.object.clone()
            },
            source: Some(EventSource { component: Some(self.component.to_string()), host: None }),
            reporting_component: Some(self.component.to_string()),
            ..Event::default()
        }
    }

    fn find_recent(&self, key: &Key) -> Option<KnownEvent> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, event| event.last.elapsed() < SERIES_WINDOW);
        known.get(key).cloned()
    }

    fn record(&self, key: Key, name: String, count: i32) {
        let event = KnownEvent { name, count, last: Instant::now() };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, event);
    }
}

fn key(note: &Note) -> Key {
    let object = &note.object;
    let identity = [&object.kind, &object.namespace, &object.name, &object.uid]
        .map(|part| part.as_deref().unwrap_or_default());
    (identity.join("/"), note.reason.to_string(), note.text.clone())
}

fn truncated(text: &str) -> String {
    if text.len() <= MAX_NOTE {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_NOTE - '…'.len_utf8());
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_note_whose_event_is_gone_is_a_new_event() {
        use http::{Method, Request, Response};
        use kube::client::Body;

        let methods: Arc<Mutex<Vec<Method>>> = Arc::default();
        let log = methods.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let method = request.method().clone();
            log.lock().unwrap().push(method.clone());
            let (code, body) = if method == Method::POST {
                (201, json!({"metadata": {"name": "e"}, "involvedObject": {}}))
            } else {
                (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404,
                    "reason": "NotFound", "message": "not found"}),
                )
            };
            let body = Body::from(body.to_string().into_bytes());
            let response = Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, std::convert::Infallible>(response))
        });
        let client = Client::new(service, "default");
        let events = Events::new(client, Arc::from("test"), Clock::System);
        let note = Note {
            object: k8s_openapi::api::core::v1::ObjectReference::default(),
            level: Level::Normal,
            reason: "Reason".into(),
            text: "text".to_owned(),
        };
        events.write(&note).await.unwrap();
        events.write(&note).await.unwrap();
        assert_eq!(*methods.lock().unwrap(), [Method::POST, Method::PATCH, Method::POST]);
    }

    #[tokio::test]
    async fn events_about_cluster_scoped_objects_are_in_the_namespace_of_the_installation() {
        let service = |_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, tower::BoxError>>()
        };
        let pool =
            mco_api::MachineConfigPool::new("worker", mco_api::MachineConfigPoolSpec::default());
        let note = Note::normal(&pool, "SetDesiredConfig", "Targeted node a");
        for (given, expected) in
            [("default", mco_api::label::NAMESPACE), ("node-config", "node-config")]
        {
            let client = Client::new(tower::service_fn(service), given);
            assert_eq!(namespace(&client), expected);
            let events = Events::new(client, Arc::from("test"), Clock::System);
            let event = events.event(&note, expected);
            assert_eq!(event.metadata.namespace.as_deref(), Some(expected));
            let object = event.involved_object;
            assert_eq!(object.namespace.as_deref(), Some(expected));
            assert_eq!(object.kind.as_deref(), Some("MachineConfigPool"));
            assert_eq!(object.name.as_deref(), Some("worker"));
        }
    }

    #[test]
    fn a_long_note_is_truncated_between_characters() {
        let long = "ä".repeat(600);
        let short = truncated(&long);
        assert!(short.len() <= MAX_NOTE && short.ends_with('…'), "{}", short.len());
        assert_eq!(truncated("plain"), "plain");
    }
}
