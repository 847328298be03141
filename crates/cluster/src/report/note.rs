//! Notes, and the reporter that publishes them.

use std::{borrow::Cow, fmt, sync::Arc};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tracing::{info, warn};

use super::{chain, event::Events};
use crate::Clock;

/// The severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Normal operation.
    Normal,
    /// An administrator may have to act.
    Warning,
}

/// A statement about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The object.
    pub object: ObjectReference,
    /// Severity of the note.
    pub level: Level,
    /// Machine-readable reason in `CamelCase`.
    pub reason: Cow<'static, str>,
    /// Human-readable text.
    pub text: String,
}

impl Note {
    /// Returns a note about normal operation.
    #[must_use]
    pub fn normal<K>(object: &K, reason: &'static str, text: impl fmt::Display) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::new(object, Level::Normal, reason, text)
    }

    /// Returns a note about a problem.
    #[must_use]
    pub fn warning<K>(object: &K, reason: &'static str, text: impl fmt::Display) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::new(object, Level::Warning, reason, text)
    }

    fn new<K: Resource<DynamicType = ()>>(
        object: &K,
        level: Level,
        reason: &'static str,
        text: impl fmt::Display,
    ) -> Self {
        let object = object.object_ref(&());
        Self { object, level, reason: Cow::Borrowed(reason), text: text.to_string() }
    }
}

/// Label of the notes metric.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    component: String,
    reason: String,
}

/// The number of notes by reason, shared by all reporters of a process.
#[derive(Clone, Debug, Default)]
pub struct NoteCount(Family<ReasonLabel, Counter>);

impl NoteCount {
    /// Registers the metric.
    pub fn register(registry: &mut Registry) -> Self {
        let count = Self::default();
        registry.register("mco_notes", "what was reported, by reason", count.0.clone());
        count
    }
}

/// Publishes notes as events, metrics and log lines.
#[derive(Clone)]
pub struct Reporter {
    component: Arc<str>,
    events: Events,
    count: NoteCount,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("component", &self.component).finish_non_exhaustive()
    }
}

impl Reporter {
    /// Creates a reporter for `component`, the reporting controller of its events.
    #[must_use]
    pub fn new(client: Client, component: &str, count: NoteCount) -> Self {
        Self::with_clock(client, component, count, Clock::System)
    }

    /// Creates a reporter that takes the times of its events from `clock`.
    #[must_use]
    pub fn with_clock(client: Client, component: &str, count: NoteCount, clock: Clock) -> Self {
        let component: Arc<str> = component.into();
        let events = Events::new(client, component.clone(), clock);
        Self { component, events, count }
    }

    /// Publishes the note.
    ///
    /// A failure to write the event is logged and otherwise ignored.
    pub async fn publish(&self, note: &Note) {
        let Note { object, level, reason, text } = note;
        let label =
            ReasonLabel { component: self.component.to_string(), reason: reason.to_string() };
        self.count.0.get_or_create(&label).inc();
        let (kind, name) = (object.kind.as_deref(), object.name.as_deref());
        match level {
            Level::Normal => info!(kind, name, %reason, "{reason}: {text}"),
            Level::Warning => warn!(kind, name, %reason, "{reason}: {text}"),
        }
        if let Err(error) = self.events.write(note).await {
            let error = chain(&error);
            warn!(kind, name, %reason, error, "Failed to write the event");
        }
    }
}
