//! The log of a test, captured from the threads that it runs on.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::MakeWriter;

/// Captured lines. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Returns a subscriber that captures the lines up to a level, without times and colours.
    #[must_use]
    pub fn dispatch(&self, level: Level) -> Dispatch {
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
