//! Requests that kube-apiserver passes on to kubelets: logs of containers, and commands in them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

/// Maximum size of the lines of a log. The oldest are dropped, as a kubelet rotates its files.
const MAX_BYTES: usize = 512 * 1024;

/// The kubelets of the cluster, which the embedder of the API server plays.
pub trait Kubelets: Send + Sync {
    /// Returns the log of a container. `None` is the log of a container that has written nothing.
    fn log(&self, pod: &Value, container: &str) -> Option<Arc<Log>>;

    /// Returns the reason why no command can run in the pod, and what to do instead.
    fn refusal(&self, pod: &Value) -> String;
}

/// The log of a container.
#[derive(Debug)]
pub struct Log {
    lines: Mutex<Lines>,
    /// Number of lines ever written.
    written: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<Line>,
    bytes: usize,
    /// Number of lines that were dropped.
    dropped: u64,
}

/// A line of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) time: Timestamp,
    pub(crate) text: Arc<str>,
}

impl Default for Log {
    fn default() -> Self {
        Self { lines: Mutex::default(), written: watch::Sender::new(0) }
    }
}

impl Log {
    /// Appends a line.
    pub fn append(&self, time: Timestamp, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.bytes = lines.bytes.saturating_add(text.len());
        lines.kept.push_back(Line { time, text: text.into() });
        while lines.bytes > MAX_BYTES && lines.kept.len() > 1 {
            let oldest = lines.kept.pop_front();
            lines.bytes = lines.bytes.saturating_sub(oldest.map_or(0, |line| line.text.len()));
            lines.dropped = lines.dropped.saturating_add(1);
        }
        // Sent under the lock, so that readers see a number that matches the lines.
        self.written.send_modify(|number| *number = number.saturating_add(1));
    }

    /// Returns the lines after the first `seen`, and the number of lines ever written.
    pub(crate) fn after(&self, seen: u64) -> (Vec<Line>, u64) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = usize::try_from(seen.saturating_sub(lines.dropped)).unwrap_or(usize::MAX);
        let new = lines.kept.iter().skip(skipped).cloned().collect();
        (new, *self.written.borrow())
    }

    /// Returns a receiver that changes with every new line.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| &*line.text).collect()
    }

    #[test]
    fn lines_are_read_once() {
        let log = Log::default();
        log.append(Timestamp::UNIX_EPOCH, "a");
        log.append(Timestamp::UNIX_EPOCH, "b");
        let (all, seen) = log.after(0);
        assert_eq!((texts(&all), seen), (vec!["a", "b"], 2));
        log.append(Timestamp::UNIX_EPOCH, "c");
        let (new, seen) = log.after(seen);
        assert_eq!((texts(&new), seen), (vec!["c"], 3));
    }

    #[test]
    fn the_oldest_lines_of_a_long_log_are_dropped() {
        let log = Log::default();
        let half = "x".repeat(MAX_BYTES / 2);
        for _ in 0..3 {
            log.append(Timestamp::UNIX_EPOCH, &half);
        }
        log.append(Timestamp::UNIX_EPOCH, "last");
        let (kept, seen) = log.after(0);
        assert_eq!((kept.len(), seen), (2, 4));
        assert_eq!(texts(&log.after(3).0), ["last"]);
    }
}
