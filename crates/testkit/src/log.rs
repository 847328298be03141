//! The log of a test, captured from the threads that it runs on.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::fmt::MakeWriter;

/// Captured lines. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

/// The subscriber of threads whose log is not captured: discards everything.
///
/// A line of code that is first executed while no subscriber is interested in it is switched off for the
/// whole process, and with several tests at once it may stay so when one of them starts to capture. This
/// subscriber asks to be asked every time.
struct Discarded;

impl Subscriber for Discarded {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

static DISCARDED: Once = Once::new();

impl Lines {
    /// Returns a subscriber that captures the lines up to a level, without times and colours.
    #[must_use]
    pub fn dispatch(&self, level: Level) -> Dispatch {
        DISCARDED.call_once(|| {
            // Fails if a test has a subscriber for all threads, which is then asked instead.
            drop(tracing::subscriber::set_global_default(Discarded));
        });
        let subscriber = tracing_subscriber::fmt()
            .with_writer(self.clone())
            .with_ansi(false)
            .with_max_level(level)
            .without_time()
            .finish();
        Dispatch::new(subscriber)
    }

    /// Returns everything logged so far.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }

    /// Returns the lines of warnings and errors.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let text = self.text();
        let is_failure = |line: &&str| {
            let level = line.trim_start();
            level.starts_with("WARN") || level.starts_with("ERROR")
        };
        text.lines().filter(is_failure).map(str::to_owned).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}
