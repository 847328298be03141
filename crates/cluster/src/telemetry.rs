//! The log of a process.

use tracing::Level;
use tracing_subscriber::{
    Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object, for collectors.
    #[default]
    Json,
    /// Text, for people.
    Text,
}

/// The log is set up already, which only `main` may do and only once.
#[derive(Debug, thiserror::Error)]
#[error("the log is set up already")]
pub struct AlreadySetUp;

/// Starts the log on standard error, at `level` for our own crates and warnings of all others.
pub fn start(format: Format, level: Level) -> Result<(), AlreadySetUp> {
    let filter = Targets::new().with_default(Level::WARN).with_target("mco", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = match format {
        Format::Json => lines.json().flatten_event(true).boxed(),
        Format::Text => lines.boxed(),
    };
    let registry = tracing_subscriber::registry().with(layer.with_filter(filter));
    registry.try_init().map_err(|_| AlreadySetUp)
}
