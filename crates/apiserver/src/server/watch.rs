//! Watches: a position in the change log of a collection, read as a stream of events.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{Body, Call, Server, answer};
use crate::{
    failure::Failure,
    select::Selector,
    store::{Change, ChangeKind, Object, stamped},
};

/// Interval between two bookmarks of an idle watch.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum duration of a watch, also the default. The client then resumes it.
const MAX_DURATION: Duration = Duration::from_hours(1);

/// Size of the events that are sent together.
const BATCH: usize = 32 * 1024;

/// The watch of one client.
struct Watcher {
    server: Arc<Server>,
    call: Call,
    selector: Selector,
    /// The objects that existed at the start and are still to be sent.
    existing: std::vec::IntoIter<Arc<Object>>,
    /// True if a bookmark is to follow them.
    marks_end: bool,
    /// The last version that this watch has sent or skipped.
    seen: u64,
    /// Bytes to send.
    ready: VecDeque<Bytes>,
    /// Bytes to send after them, which more events may follow.
    batch: BytesMut,
    signal: watch::Receiver<u64>,
    bookmark_at: Instant,
    end_at: Instant,
    ended: bool,
}

impl Server {
    /// Starts a watch that sends every change after the requested version, once and in order.
    pub(super) fn watch(self: &Arc<Self>, call: Call) -> Result<Response<Body>, Failure> {
        let watcher = self.watcher(call)?;
        let frames = stream::unfold(watcher, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(line)), watcher))
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }

    fn watcher(self: &Arc<Self>, call: Call) -> Result<Watcher, Failure> {
        let query = &call.query;
        let mut selector =
            Selector::parse(&query.label_selector, &query.field_selector, &call.resource)?;
        if let Some(name) = &call.name {
            selector = selector.named(name);
        }
        query.check_watch()?;
        let version = query.version().map_err(Failure::without_reason)?;
        let asked = version.unwrap_or(0);
        let current = self.store.version();
        if asked > current {
            return Err(Failure::future_version(asked, current));
        }
        let now = Instant::now();
        let lasts = query.timeout_seconds.filter(|seconds| *seconds > 0);
        let lasts = lasts.map_or(MAX_DURATION, Duration::from_secs).min(MAX_DURATION);
        let mut watcher = Watcher {
            server: Arc::clone(self),
            // Subscribes before the first read of the log, so that no change is missed between the
            // two.
            signal: self.store.subscribe(&call.resource.collection),
            selector,
            existing: Vec::new().into_iter(),
            marks_end: false,
            seen: asked,
            ready: VecDeque::new(),
            batch: BytesMut::new(),
            bookmark_at: now + BOOKMARK_INTERVAL,
            end_at: now + lasts,
            ended: false,
            call,
        };
        if asked == 0 || watcher.call.query.send_initial {
            watcher.begin_with_existing();
        }
        Ok(watcher)
    }
}

impl Watcher {
    /// Begins with `ADDED` events of all existing objects.
    fn begin_with_existing(&mut self) {
        let collection = &self.call.resource.collection;
        let namespace = self.call.namespace.as_deref();
        let (objects, version) = self.server.store.list(collection, namespace, None);
        self.existing = objects.into_iter();
        self.marks_end = self.call.query.send_initial;
        self.seen = version;
    }

    /// Queues the events of the next existing objects, of about one batch: only a client that reads
    /// gets a copy of them.
    fn read_existing(&mut self) {
        while self.ready.is_empty() {
            let Some(object) = self.existing.next() else {
                if std::mem::take(&mut self.marks_end) {
                    self.send_bookmark(true);
                }
                return;
            };
            if self.selector.selects(&object) {
                self.send(EventKind::Added, &object);
            }
        }
    }

    /// Returns the next bytes of the stream. `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.read_existing();
            if let Some(next) = self.ready.pop_front() {
                return Some(next);
            }
            if !self.batch.is_empty() {
                return Some(self.batch.split().freeze());
            }
            if self.ended {
                return None;
            }
            self.signal.mark_unchanged();
            self.read_log();
            if !self.ready.is_empty() || !self.batch.is_empty() || self.ended {
                continue;
            }
            tokio::select! {
                biased;
                () = self.server.stop.cancelled() => self.ended = true,
                () = self.server.outage.begun() => self.ended = true,
                changed = self.signal.changed() => self.ended = changed.is_err(),
                () = tokio::time::sleep_until(self.bookmark_at), if self.call.query.bookmarks => {
                    self.bookmark_at = Instant::now() + BOOKMARK_INTERVAL;
                    self.send_bookmark(false);
                }
                () = tokio::time::sleep_until(self.end_at) => {
                    self.ended = true;
                    if self.call.query.bookmarks {
                        self.send_bookmark(false);
                    }
                }
            }
        }
    }

    /// Queues the events of the next changes, of about one batch: a client that reads slowly leaves the
    /// others in the log, which all watches share.
    fn read_log(&mut self) {
        while self.ready.is_empty() && self.batch.is_empty() {
            match self.server.store.since(&self.call.resource.collection, self.seen) {
                Ok((changes, complete)) => {
                    self.seen = self.send_changes(&changes).unwrap_or(complete);
                    if changes.is_empty() {
                        return;
                    }
                }
                Err(old) => {
                    let why = format!("too old resource version: {} ({})", self.seen, old.oldest);
                    let status = Failure::expired(why).status();
                    self.push(EventKind::Error, status.to_string().into());
                    self.ended = true;
                }
            }
        }
    }

    /// Queues the events of changes. Returns the version of the change that completes a batch.
    fn send_changes(&mut self, changes: &[Change]) -> Option<u64> {
        for change in changes {
            self.send_change(change);
            if !self.ready.is_empty() {
                return Some(change.object.version);
            }
        }
        None
    }

    /// Sends the event of a change as the selector sees it: a change can move an object into the
    /// selection or out of it.
    fn send_change(&mut self, change: &Change) {
        if let Some(namespace) = &self.call.namespace
            && *change.object.head.namespace != **namespace
        {
            return;
        }
        let now = self.selector.selects(&change.object);
        let before = change.before.as_ref().filter(|old| self.selector.selects(old));
        match (change.kind, before, now) {
            (ChangeKind::Deleted, Some(_), _) => self.send(EventKind::Deleted, &change.object),
            (ChangeKind::Added | ChangeKind::Modified, None, true) => {
                self.send(EventKind::Added, &change.object);
            }
            (ChangeKind::Added | ChangeKind::Modified, Some(_), true) => {
                self.send(EventKind::Modified, &change.object);
            }
            (ChangeKind::Added | ChangeKind::Modified, Some(old), false) => {
                let gone = stamped(old.whole(), change.object.version);
                self.send(EventKind::Deleted, &gone);
            }
            (ChangeKind::Deleted, None, _)
            | (ChangeKind::Added | ChangeKind::Modified, None, false) => {}
        }
    }

    /// Queues an event. All watches share the text of a large object; small ones are sent together.
    fn push(&mut self, kind: EventKind, object: Bytes) {
        self.batch.put_slice(kind.head());
        if object.len() < BATCH {
            self.batch.put_slice(&object);
        } else {
            self.ready.extend([self.batch.split().freeze(), object]);
        }
        self.batch.put_slice(b"}\n");
        if self.batch.len() >= BATCH {
            self.ready.push_back(self.batch.split().freeze());
        }
    }

    fn send(&mut self, kind: EventKind, object: &Object) {
        let include = &self.call.query.include_object;
        let now = self.server.clock.now();
        let text = answer::object(&self.call.resource, object, self.call.shape, now, include);
        self.push(kind, text);
    }

    fn send_bookmark(&mut self, initial_end: bool) {
        let resource = &self.call.resource;
        let mut meta = json!({"resourceVersion": self.seen.to_string(), "creationTimestamp": null});
        if initial_end {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            crate::object::map_of(&mut meta).insert("annotations".into(), annotations);
        }
        let object: Value = match self.call.shape {
            answer::Shape::Plain => {
                json!({"kind": resource.kind, "apiVersion": resource.api_version(),
                       "metadata": meta})
            }
            answer::Shape::Meta => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                       "metadata": meta})
            }
            answer::Shape::Table => {
                let shown = json!({"metadata": meta});
                let row = json!({"cells": [], "object": answer::metadata(&shown)});
                crate::table::table(resource, &[row], &meta)
            }
        };
        self.push(EventKind::Bookmark, object.to_string().into());
    }
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventKind {
    /// Returns the event's text up to the object.
    fn head(self) -> &'static [u8] {
        match self {
            Self::Added => b"{\"type\":\"ADDED\",\"object\":",
            Self::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => b"{\"type\":\"DELETED\",\"object\":",
            Self::Bookmark => b"{\"type\":\"BOOKMARK\",\"object\":",
            Self::Error => b"{\"type\":\"ERROR\",\"object\":",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        query,
        resource::builtin,
        review::{Claims, Identity},
        service::Settings,
        store::{Key, Put, Write},
    };

    #[tokio::test]
    async fn existing_objects_are_encoded_when_the_client_reads_them() {
        const OBJECTS: usize = 500;
        let server = Arc::new(Server::open(None, Settings::default()).unwrap());
        for number in 0..OBJECTS {
            let name = format!("c{number}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "n"}, "data": {"k": "x".repeat(1_000)}});
            let (collection, key) = ("configmaps".into(), Key::new("n", &name));
            let write = Write { collection, key, expect: None, put: Put::Keep(object) };
            server.store.commit(write).await.unwrap();
        }
        let call = Call {
            resource: Arc::new(builtin::by_plural("configmaps")),
            namespace: Some("n".to_owned()),
            name: None,
            query: query::parse("watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan")
                .unwrap(),
            shape: answer::Shape::Plain,
            manager: String::new(),
            subresource: String::new(),
            caller: Identity { user: String::new(), groups: Vec::new() },
            claims: Claims::default(),
        };
        let mut watcher = server.watcher(call).unwrap();
        let mut text = Vec::new();
        while text.split(|byte| *byte == b'\n').count() <= OBJECTS + 1 {
            let queued = watcher.ready.iter().map(Bytes::len).sum::<usize>() + watcher.batch.len();
            assert!(queued < 2 * BATCH, "{queued}");
            text.extend(watcher.next().await.unwrap());
        }
        let lines: Vec<&str> = std::str::from_utf8(&text).unwrap().lines().collect();
        assert_eq!(lines.len(), OBJECTS + 1);
        assert!(lines[OBJECTS].starts_with("{\"type\":\"BOOKMARK\""));
    }
}
