//! Watches: the objects of one kind, listed and then followed.
//!
//! Objects arrive as text and are decoded by the receiver one by one. So one watch is compiled for all
//! kinds, and an object that cannot be decoded does not stop the others. `progress` decides about the
//! requests; this file sends them.

mod error;
mod object;
mod progress;
mod source;
mod text;
mod unreadable;

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

pub use self::{
    error::WatchError,
    object::{Observed, object},
    progress::IDLE_LIMIT,
    source::Config,
    unreadable::Unreadable,
};
pub(crate) use self::{
    progress::Relist,
    text::{Page, Text},
};
use self::{
    progress::{Next, Outcome, Progress, Request},
    source::Source,
    text::{Line, LineKind, Lines},
};
use crate::{Api, CallError, Object, health::WatchActivity, report::chain};

/// Time in which the API server must answer a list in full, or accept a watch. A client with shorter
/// limits fails earlier.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);

/// Range of the time after which the API server ends a watch, in seconds. Random, so that not all
/// watches are resumed at once.
const WATCH_SECONDS: std::ops::Range<u64> = 300..600;

/// Minimum age of a list after which the objects are listed again, and its random part, in seconds.
const MAX_AGE_SECONDS: std::ops::Range<u64> = 3600..7200;

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum Event {
    /// The first page of a list is about to be requested.
    ListStarted,
    /// A page of the list arrived.
    Page(Page, String),
    /// The list is complete.
    Listed,
    /// An object was added or changed.
    Applied(Text),
    /// An object was deleted.
    Deleted(Text),
    /// All changes up to a version were delivered.
    Bookmark(String),
    /// The watch failed. It continues by itself.
    Failed(WatchError),
}

/// A watch of the objects of one kind.
pub(crate) struct Watcher {
    source: Source,
    kind: String,
    progress: Progress,
    phase: Phase,
    /// Earliest time of the next request.
    due: Instant,
    /// Last time that something was heard.
    heard: Instant,
    /// Time of the last complete list.
    listed: Instant,
    opened: Instant,
    /// Time after which the API server ends the watch.
    requested: Duration,
    /// Last failure that was logged; a repetition is logged for debugging only.
    logged: Option<String>,
    activity: WatchActivity,
}

/// The state of the current request.
enum Phase {
    /// The request is not sent yet.
    Waiting,
    /// The first page is about to be requested.
    Listing,
    /// The last page was delivered.
    ListEnd,
    /// Events are being read.
    Reading(Lines),
}

impl Watcher {
    /// Starts a watch of the objects that `config` selects.
    pub(crate) fn new<K: Object>(api: &Api<K>, config: &Config) -> Self {
        let kind = K::kind(&()).into_owned();
        let now = Instant::now();
        let max_age = Duration::from_secs(fastrand::u64(MAX_AGE_SECONDS));
        Self {
            source: Source::new(api, config),
            progress: Progress::new(config.page_size, max_age),
            phase: Phase::Waiting,
            due: now,
            heard: now,
            listed: now,
            opened: now,
            requested: Duration::ZERO,
            logged: None,
            activity: config.health.watch(&kind, config.presence),
            kind,
        }
    }

    /// Lists the objects again, because the receiver needs them.
    pub(crate) fn relist(&mut self, reason: Relist) {
        self.act(Outcome::Demanded(reason));
    }

    /// Reports the number of objects that the receiver cannot decode.
    pub(crate) fn set_unreadable(&self, count: usize) {
        self.activity.set_unreadable(count);
    }

    /// Returns the next event. Never ends. An event can be lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = Box::pin(self.step()).await {
                return event;
            }
        }
    }

    async fn step(&mut self) -> Option<Event> {
        match &mut self.phase {
            Phase::Waiting => {
                sleep_until(self.due).await;
                match self.progress.request() {
                    Request::List { token: None, .. } => {
                        self.phase = Phase::Listing;
                        Some(Event::ListStarted)
                    }
                    Request::List { .. } => {
                        self.phase = Phase::Listing;
                        None
                    }
                    Request::Watch { .. } => self.open().await,
                    Request::Probe { .. } => self.probe().await,
                }
            }
            Phase::Listing => self.fetch_page().await,
            Phase::ListEnd => {
                self.phase = Phase::Waiting;
                self.listed = Instant::now();
                self.activity.synced();
                Some(Event::Listed)
            }
            Phase::Reading(lines) => {
                match timeout_at(self.heard + IDLE_LIMIT, lines.next()).await {
                    Ok(Ok(Some(line))) => self.take(&line),
                    Ok(Ok(None)) => {
                        let (lasted, list_age) = (self.opened.elapsed(), self.listed.elapsed());
                        let is_early = lasted < self.requested;
                        debug!(kind = self.kind, ?lasted, is_early, "Watch ended");
                        self.act(Outcome::Ended { lasted, is_early, list_age });
                        None
                    }
                    Ok(Err(error)) => Some(self.failed(error)),
                    Err(_) => Some(self.failed(WatchError::Idle)),
                }
            }
        }
    }

    async fn fetch_page(&mut self) -> Option<Event> {
        let Request::List { token, limit } = self.progress.request() else { return None };
        let fetched = self.source.fetch_page(token.as_deref(), *limit);
        let fetched = timeout(ANSWER_LIMIT, fetched).await;
        let fetched = fetched.unwrap_or(Err(WatchError::NoAnswer { limit: ANSWER_LIMIT }));
        let (page, metadata) = match fetched {
            Ok(fetched) => fetched,
            Err(error) => return Some(self.failed(error)),
        };
        let Some(version) = metadata.resource_version.filter(|version| !version.is_empty()) else {
            return Some(self.failed(WatchError::NoVersion));
        };
        let token = metadata.continue_.filter(|token| !token.is_empty());
        let is_last = token.is_none();
        self.hear();
        self.act(Outcome::Page { version: version.clone(), token });
        if is_last {
            self.phase = Phase::ListEnd;
        }
        Some(Event::Page(page, version))
    }

    async fn open(&mut self) -> Option<Event> {
        let Request::Watch { version } = self.progress.request() else { return None };
        let seconds = fastrand::u64(WATCH_SECONDS);
        self.requested = Duration::from_secs(seconds);
        let limit = ANSWER_LIMIT.min((self.heard + IDLE_LIMIT).duration_since(Instant::now()));
        let opened = timeout(limit, self.source.open(version, seconds)).await;
        match opened.unwrap_or(Err(WatchError::NoAnswer { limit })) {
            Ok(lines) => {
                self.opened = Instant::now();
                self.phase = Phase::Reading(lines);
                None
            }
            Err(error) => {
                self.opened = Instant::now();
                Some(self.failed(error))
            }
        }
    }

    /// Asks for the current version of the API server.
    async fn probe(&mut self) -> Option<Event> {
        let limit = ANSWER_LIMIT.min((self.heard + IDLE_LIMIT).duration_since(Instant::now()));
        let fetched = timeout(limit, self.source.fetch_page(None, Some(1))).await;
        let fetched = fetched.unwrap_or(Err(WatchError::NoAnswer { limit }));
        match fetched.map(|(_, metadata)| metadata.resource_version.unwrap_or_default()) {
            Ok(version) if version.is_empty() => Some(self.failed(WatchError::NoVersion)),
            Ok(version) => {
                self.act(Outcome::Current { version });
                None
            }
            Err(error) => Some(self.failed(error)),
        }
    }

    /// Takes a line of the watch.
    fn take(&mut self, bytes: &bytes::Bytes) -> Option<Event> {
        let line: Line<'_> = match serde_json::from_slice(bytes) {
            Ok(line) => line,
            Err(error) => return Some(self.failed(WatchError::unreadable(&error))),
        };
        if line.kind == LineKind::Error {
            return Some(self.take_error(line.object.get()));
        }
        let Some(version) = text::version(line.object.get()) else {
            return Some(self.failed(WatchError::NoVersion));
        };
        self.hear();
        if self.act(Outcome::Heard { version: version.clone() }) != Next::Read {
            return None;
        }
        let text = Text::of(bytes, line.object);
        Some(match line.kind {
            LineKind::Added | LineKind::Modified => Event::Applied(text),
            LineKind::Deleted => Event::Deleted(text),
            LineKind::Bookmark | LineKind::Error => Event::Bookmark(version),
        })
    }

    /// Takes the status of an ERROR event.
    fn take_error(&mut self, status: &str) -> Event {
        let status: kube::core::Status = match serde_json::from_str(status) {
            Ok(status) => status,
            Err(error) => return self.failed(WatchError::unreadable(&error)),
        };
        let outcome = Outcome::ErrorEvent(error::refusal(&status));
        let error = WatchError::Refused(CallError::from(kube::Error::Api(Box::new(status))));
        self.log(&error);
        self.act(outcome);
        Event::Failed(error)
    }

    fn failed(&mut self, error: WatchError) -> Event {
        let is_list = matches!(self.progress.request(), Request::List { .. });
        if error.is_no_kind() && is_list {
            self.activity.absent();
        }
        let outcome = match &error {
            WatchError::Refused(call) => {
                Outcome::Refused(call.status().map_or(progress::Refusal::Other, error::refusal))
            }
            WatchError::Connection(_) | WatchError::NoAnswer { .. } => {
                let lasted = match self.phase {
                    Phase::Reading(_) => self.opened.elapsed(),
                    Phase::Waiting | Phase::Listing | Phase::ListEnd => Duration::ZERO,
                };
                Outcome::Broken { lasted }
            }
            WatchError::TooLong { .. } if is_list => Outcome::PageTooLarge,
            WatchError::Idle => Outcome::Idle,
            WatchError::TooLong { .. }
            | WatchError::Unreadable { .. }
            | WatchError::NoVersion
            | WatchError::Object { .. } => Outcome::Unreadable,
        };
        self.log(&error);
        self.act(outcome);
        Event::Failed(error)
    }

    /// Logs a failure once, however often it repeats, and counts it each time.
    fn log(&mut self, error: &WatchError) {
        self.activity.failed();
        let (kind, text) = (&self.kind, chain(error));
        if self.logged.as_ref() == Some(&text) {
            debug!(kind, error = text, "Failed to watch");
            return;
        }
        if error.is_not_found() {
            // The operator may be about to create the CRD.
            info!(kind, "The API server does not serve the kind yet");
        } else {
            warn!(kind, error = text, "Failed to watch");
        }
        self.logged = Some(text);
    }

    /// Prepares the step that follows an outcome.
    fn act(&mut self, outcome: Outcome) -> Next {
        let next = self.progress.after(outcome);
        if let Next::Send { pause, relist } = &next {
            self.phase = Phase::Waiting;
            self.due = Instant::now() + pause.mul_f64(1.0 + fastrand::f64() / 2.0);
            if let Some(reason) = relist {
                info!(kind = self.kind, reason = reason.as_str(), "Listing the objects again");
                self.activity.relist(*reason);
                // The list itself has a time limit.
                self.heard = Instant::now();
            }
        }
        next
    }

    fn hear(&mut self) {
        self.heard = Instant::now();
        self.activity.heard();
        if self.logged.take().is_some() {
            info!(kind = self.kind, "Watch recovered");
        }
    }
}

#[cfg(test)]
mod tests;
