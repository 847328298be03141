//! The time of day as a value, so that a test can bring its own.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Tells the time of day.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The machine's.
    System,
    /// A fixed start plus what tokio's clock, which tests may pause, has gone on since.
    Anchored {
        /// Time of day at the start.
        start: Timestamp,
        /// The start on tokio's clock.
        instant: Instant,
    },
}

impl Clock {
    /// A clock that stands at `start` now and goes on with tokio's.
    #[must_use]
    pub fn anchored(start: Timestamp) -> Self {
        Self::Anchored { start, instant: Instant::now() }
    }

    /// The time of day.
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
