//! Log lines for another receiver than standard error, with the component that wrote each.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

/// Name of the span of a daemon, which has the field [`NODE`].
const DAEMON: &str = "daemon";
const NODE: &str = "node";

/// A log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// Module that wrote the line.
    pub target: &'a str,
    /// Node of the daemon that wrote the line.
    pub node: Option<&'a str>,
    /// Level, module, message and fields.
    pub text: &'a str,
}

/// A receiver of log lines.
pub type Receiver = Arc<dyn Fn(LogLine<'_>) + Send + Sync>;

/// Passes the lines of a level to a receiver.
pub(super) struct Capture {
    pub(super) level: Level,
    pub(super) receiver: Receiver,
}

/// The node of a daemon's span.
struct NodeOfSpan(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() != DAEMON {
            return;
        }
        let mut found = NodeField(None);
        attributes.record(&mut found);
        if let (Some(node), Some(span)) = (found.0, context.span(id)) {
            span.extensions_mut().replace(NodeOfSpan(node));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        // Other crates do not log, as on standard error.
        if *metadata.level() > self.level || !metadata.target().starts_with("mco") {
            return;
        }
        let node =
            context.event_scope(event).into_iter().flatten().find_map(|span| {
                span.extensions().get::<NodeOfSpan>().map(|found| found.0.clone())
            });
        let mut text = format!("{:>5} {}:", metadata.level().as_str(), metadata.target());
        event.record(&mut Text(&mut text));
        (self.receiver)(LogLine { target: metadata.target(), node: node.as_deref(), text: &text });
    }
}

struct NodeField(Option<String>);

impl Visit for NodeField {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == NODE {
            self.0 = Some(format!("{value:?}"));
        }
    }
}

/// Appends the message and the fields of an event.
struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        written.expect("a String accepts everything");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::{debug, info, info_span, warn};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn lines_carry_the_node_of_their_daemon() {
        type Lines = Mutex<Vec<(Option<String>, String)>>;
        let lines: Arc<Lines> = Arc::default();
        let kept = Arc::clone(&lines);
        let receiver: Receiver = Arc::new(move |line: LogLine<'_>| {
            let mut kept = kept.lock().unwrap();
            kept.push((line.node.map(str::to_owned), line.text.to_owned()));
        });
        let capture = Capture { level: Level::INFO, receiver };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(capture), || {
            let node = "worker-0";
            info_span!("daemon", %node).in_scope(|| {
                info_span!("inner")
                    .in_scope(|| info!(target: "mco_daemon", config = "a", "Applied"));
            });
            info_span!("other", %node).in_scope(|| warn!(target: "mco_controller", "Failed"));
            debug!(target: "mco_controller", "details");
            info!(target: "kube", "contents of an object");
        });
        let want = [
            (Some("worker-0".to_owned()), " INFO mco_daemon: Applied config=\"a\"".to_owned()),
            (None, " WARN mco_controller: Failed".to_owned()),
        ];
        assert_eq!(*lines.lock().unwrap(), want);
    }
}
