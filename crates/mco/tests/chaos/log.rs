//! The log of a run, captured from the threads of its runtime.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;

/// The captured lines.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
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

impl Lines {
    /// Returns a subscriber that captures what an administrator sees by default.
    pub(crate) fn dispatch(&self) -> Dispatch {
        let subscriber = tracing_subscriber::fmt()
            .with_writer(self.clone())
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .without_time()
            .finish();
        Dispatch::new(subscriber)
    }

    /// Returns everything logged so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// Returns true if a process gave up a request to this path, such as a daemon before a reboot.
    pub(crate) fn has_given_up(&self, path: &str) -> bool {
        let is_it = |line: &str| line.contains("Gave up a request") && line.contains(path);
        self.text().lines().any(is_it)
    }

    /// Returns the lines of failures.
    pub(crate) fn failures(&self) -> Vec<String> {
        let text = self.text();
        let is_failure = |line: &&str| {
            let level = line.trim_start();
            level.starts_with("WARN") || level.starts_with("ERROR")
        };
        text.lines().filter(is_failure).map(str::to_owned).collect()
    }
}
