//! Watches: a place in a track's log, turned into a stream of lines.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
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
    store::{Change, Happened, Object, stamped},
};

/// How often a quiet watch is told how far it has come.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// How long a watch lasts when the client names no limit; then it starts again from where it was.
const LONGEST: Duration = Duration::from_hours(1);

/// One client's watch.
struct Watcher {
    server: Arc<Server>,
    call: Call,
    selector: Selector,
    /// The last version this watch has told or passed over.
    seen: u64,
    ready: VecDeque<Bytes>,
    signal: watch::Receiver<u64>,
    bookmark_at: Instant,
    end_at: Instant,
    ended: bool,
}

impl Server {
    /// Starts a watch; everything after its version will be told, once and in order.
    pub(super) fn watch(self: &Arc<Self>, call: Call) -> Result<Response<Body>, Failure> {
        let query = &call.query;
        let mut selector =
            Selector::parse(&query.label_selector, &query.field_selector, &call.resource)?;
        if let Some(name) = &call.name {
            selector = selector.named(name);
        }
        let asked = query.version()?.unwrap_or(0);
        let current = self.store.version();
        if asked > current {
            return Err(Failure::future_version(asked, current));
        }
        let now = Instant::now();
        let lasts = query.timeout_seconds.filter(|seconds| *seconds > 0);
        let lasts = lasts.map_or(LONGEST, Duration::from_secs).min(LONGEST);
        let mut watcher = Watcher {
            server: Arc::clone(self),
            // Subscribed before the first look, so that no change falls between the two.
            signal: self.store.subscribe(&call.resource.track),
            selector,
            seen: asked,
            ready: VecDeque::new(),
            bookmark_at: now + BOOKMARK_EVERY,
            end_at: now + lasts,
            ended: false,
            call,
        };
        if asked == 0 || watcher.call.query.send_initial {
            watcher.tell_present();
        }
        let frames = stream::unfold(watcher, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(line)), watcher))
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        Ok(response)
    }
}

impl Watcher {
    /// Tells everything that is there now, as if it had just been added.
    fn tell_present(&mut self) {
        let track = Arc::clone(&self.call.resource.track);
        let namespace = self.call.namespace.clone();
        let (objects, version) = self.server.store.list(&track, namespace.as_deref(), None);
        for object in objects {
            if self.selector.matches(&object.value) {
                self.tell(Told::Added, &object);
            }
        }
        self.seen = version;
        if self.call.query.send_initial {
            self.tell_bookmark(true);
        }
    }

    /// The next line; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            self.signal.mark_unchanged();
            self.read_log();
            if !self.ready.is_empty() || self.ended {
                continue;
            }
            tokio::select! {
                biased;
                () = self.server.stop.cancelled() => self.ended = true,
                changed = self.signal.changed() => self.ended = changed.is_err(),
                () = tokio::time::sleep_until(self.bookmark_at), if self.call.query.bookmarks => {
                    self.bookmark_at = Instant::now() + BOOKMARK_EVERY;
                    self.tell_bookmark(false);
                }
                () = tokio::time::sleep_until(self.end_at) => {
                    self.ended = true;
                    if self.call.query.bookmarks {
                        self.tell_bookmark(false);
                    }
                }
            }
        }
    }

    fn read_log(&mut self) {
        match self.server.store.since(&self.call.resource.track, self.seen) {
            Ok((changes, complete)) => {
                for change in &changes {
                    self.tell_change(change);
                }
                self.seen = complete;
            }
            Err(old) => {
                let why = format!("too old resource version: {} ({})", self.seen, old.oldest);
                let status = Failure::expired(why).status();
                self.push(Told::Error, status.to_string().into());
                self.ended = true;
            }
        }
    }

    /// Tells a change as it looks through the selector: an object can come into view or leave it.
    fn tell_change(&mut self, change: &Change) {
        if let Some(namespace) = &self.call.namespace
            && crate::object::namespace(&change.object.value) != namespace
        {
            return;
        }
        let now = self.selector.matches(&change.object.value);
        let before = change.before.as_ref().filter(|old| self.selector.matches(&old.value));
        match (change.happened, before, now) {
            (Happened::Deleted, Some(_), _) => self.tell(Told::Deleted, &change.object),
            (Happened::Added | Happened::Modified, None, true) => {
                self.tell(Told::Added, &change.object);
            }
            (Happened::Added | Happened::Modified, Some(_), true) => {
                self.tell(Told::Modified, &change.object);
            }
            (Happened::Added | Happened::Modified, Some(old), false) => {
                let gone = stamped(old.value.clone(), change.object.version);
                self.tell(Told::Deleted, &gone);
            }
            (Happened::Deleted, None, _) | (Happened::Added | Happened::Modified, None, false) => {}
        }
    }

    /// A line goes out in three pieces: the object's text is shared by all who watch it.
    fn push(&mut self, kind: Told, object: Bytes) {
        self.ready.extend([kind.head(), object, Bytes::from_static(b"}\n")]);
    }

    fn tell(&mut self, kind: Told, object: &Object) {
        let include = &self.call.query.include_object;
        let now = self.server.clock.now();
        let text = answer::object(&self.call.resource, object, self.call.shape, now, include);
        self.push(kind, text);
    }

    fn tell_bookmark(&mut self, initial_end: bool) {
        let resource = &self.call.resource;
        let mut meta = json!({"resourceVersion": self.seen.to_string(), "creationTimestamp": null});
        if initial_end {
            let told = json!({"k8s.io/initial-events-end": "true"});
            crate::object::map_of(&mut meta).insert("annotations".into(), told);
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
        self.push(Told::Bookmark, object.to_string().into());
    }
}

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl Told {
    /// The line up to the object.
    fn head(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Added => b"{\"type\":\"ADDED\",\"object\":",
            Self::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            Self::Deleted => b"{\"type\":\"DELETED\",\"object\":",
            Self::Bookmark => b"{\"type\":\"BOOKMARK\",\"object\":",
            Self::Error => b"{\"type\":\"ERROR\",\"object\":",
        })
    }
}
