//! Logging of a process.

mod capture;

pub use capture::{LogLine, Receiver};

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use tracing::{Level, info};
use tracing_subscriber::{
    Layer as _, Registry,
    filter::Targets,
    layer::{Layered, SubscriberExt as _},
    reload,
    util::SubscriberInitExt as _,
};

use self::capture::Capture;

/// The part of the log below the lines on standard error.
type Captured = Layered<Option<Capture>, Registry>;

/// The format of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per line, for log collectors.
    #[default]
    Json,
    /// Text, for people.
    Text,
}

/// The level of a log that can be changed while the process runs.
#[derive(Clone, Default)]
pub struct LogLevel(Arc<OnceLock<Running>>);

/// A log that was started.
struct Running {
    /// Level that the command line asks for.
    lowest: Level,
    filter: reload::Handle<Targets, Captured>,
}

impl LogLevel {
    /// Sets the level. The level that the log was started with stays if it has more messages. Without
    /// effect before the log is started.
    pub fn set(&self, level: Level) {
        let Some(running) = self.0.get() else { return };
        let level = level.max(running.lowest);
        let wanted = targets(level);
        if running.filter.with_current(|found| *found == wanted).unwrap_or(true) {
            return;
        }
        // Fails only if the log has ended.
        drop(running.filter.reload(wanted));
        info!(log_level = %level, "Changed the level of the log");
    }
}

impl fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogLevel").field("is_started", &self.0.get().is_some()).finish()
    }
}

/// Returns the level for a verbosity, as Kubernetes counts it.
#[must_use]
pub fn level_of(verbosity: u8) -> Level {
    match verbosity {
        0..=3 => Level::INFO,
        4..=5 => Level::DEBUG,
        6.. => Level::TRACE,
    }
}

/// Returns the filter of messages.
fn targets(level: Level) -> Targets {
    Targets::new().with_target("mco", level)
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
    start_adjustable(format, level, &LogLevel::default())
}

/// Starts logging as [`start`] does. `adjust` can change the level later.
pub fn start_adjustable(
    format: Format,
    level: Level,
    adjust: &LogLevel,
) -> Result<(), AlreadySetUp> {
    start_layers(format, level, adjust, None)
}

/// Starts logging as [`start`] does, and passes the lines of level INFO to `receiver`, whatever the
/// level of standard error.
pub fn start_captured(
    format: Format,
    level: Level,
    receiver: Receiver,
) -> Result<(), AlreadySetUp> {
    let capture = Capture { level: Level::INFO, receiver };
    start_layers(format, level, &LogLevel::default(), Some(capture))
}

fn start_layers(
    format: Format,
    level: Level,
    adjust: &LogLevel,
    capture: Option<Capture>,
) -> Result<(), AlreadySetUp> {
    let (filter, handle) = reload::Layer::new(targets(level));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = match format {
        Format::Json => lines.json().flatten_event(true).boxed(),
        Format::Text => lines.boxed(),
    };
    let registry = tracing_subscriber::registry().with(capture).with(layer.with_filter(filter));
    registry.try_init().map_err(|_| AlreadySetUp)?;
    adjust.0.set(Running { lowest: level, filter: handle }).map_err(|_| AlreadySetUp)
}
