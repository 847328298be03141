//! Logging of a process.

use tracing::Level;
use tracing_subscriber::{
    Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line, for log collectors.
    #[default]
    Json,
    /// Text, for people.
    Text,
}

/// Logging was started before. Only `main` may start it, once.
#[derive(Debug, thiserror::Error)]
#[error("logging was started before")]
pub struct AlreadySetUp;

/// Starts logging to standard error, at `level` for the crates of this workspace.
///
/// Other crates do not log: kube's client quotes whole answers, at WARN too, and contents of objects
/// must not reach a log. Their errors reach the crates of this workspace, which log them.
pub fn start(format: Format, level: Level) -> Result<(), AlreadySetUp> {
    let filter = Targets::new().with_target("mco", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = match format {
        Format::Json => lines.json().flatten_event(true).boxed(),
        Format::Text => lines.boxed(),
    };
    let registry = tracing_subscriber::registry().with(layer.with_filter(filter));
    registry.try_init().map_err(|_| AlreadySetUp)
}
