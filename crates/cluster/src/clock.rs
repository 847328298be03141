//! The wall clock as a value, so that tests can provide their own.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A wall clock.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's clock.
    System,
    /// A fixed start plus the time that has passed on tokio's clock, which tests may pause.
    Anchored {
        /// Wall time at the start.
        start: Timestamp,
        /// The start on tokio's clock.
        instant: Instant,
    },
}

impl Clock {
    /// Returns a clock that shows `start` now and advances with tokio's.
    #[must_use]
    pub fn anchored(start: Timestamp) -> Self {
        Self::Anchored { start, instant: Instant::now() }
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Anchored { start, instant } => {
                let elapsed = SignedDuration::try_from(instant.elapsed()).unwrap_or_default();
                start.saturating_add(elapsed).unwrap_or(*start)
            }
        }
    }
}
