//! Durations of a lease and its renewals.

use std::time::Duration;

/// Durations of a lease and its renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Time after which an unchanged lease has expired.
    pub lease: Duration,
    /// Time after which the leader gives up without a renewal; shorter than the lease.
    pub renew: Duration,
    /// Pause between two attempts.
    pub retry: Duration,
}

/// Durations with which two processes could lead at once, or none for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTimings {
    /// A lease has whole seconds.
    #[error("the lease must last for whole seconds, and for one at least")]
    Lease,
    /// The leader would still write after another process may have acquired the lease.
    #[error("the renew deadline must be shorter than the lease")]
    Renew,
    /// One failed attempt would lose the lease.
    #[error("the retry period must not be zero, and must fit twice into the renew deadline")]
    Retry,
}

impl Timings {
    /// The successor of a killed leader takes over within twenty seconds; client-go's defaults.
    pub const FAST: Self = Self::seconds(15, 10, 2);
    /// A leader survives a minute without an API server, as OpenShift asks of its operators; the
    /// reference's values. The successor of a killed leader takes over after more than two minutes.
    pub const HIGHLY_AVAILABLE: Self = Self::seconds(137, 107, 26);

    const fn seconds(lease: u64, renew: u64, retry: u64) -> Self {
        let of = Duration::from_secs;
        Self { lease: of(lease), renew: of(renew), retry: of(retry) }
    }

    /// Returns the durations, if they exclude a second leader.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, BadTimings> {
        if lease.is_zero() || lease.subsec_nanos() > 0 {
            Err(BadTimings::Lease)
        } else if renew >= lease {
            Err(BadTimings::Renew)
        } else if retry.is_zero() || retry.saturating_mul(2) > renew {
            Err(BadTimings::Retry)
        } else {
            Ok(Self { lease, renew, retry })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: LE-1
    #[test]
    fn durations_that_allow_two_leaders_are_rejected() {
        let rows = [
            (15_000, 10_000, 2_000, Ok(Timings::FAST)),
            (137_000, 107_000, 26_000, Ok(Timings::HIGHLY_AVAILABLE)),
            (0, 0, 0, Err(BadTimings::Lease)),
            (1_500, 1_000, 100, Err(BadTimings::Lease)),
            (10_000, 10_000, 2_000, Err(BadTimings::Renew)),
            (10_000, 12_000, 2_000, Err(BadTimings::Renew)),
            (15_000, 10_000, 0, Err(BadTimings::Retry)),
            (15_000, 10_000, 6_000, Err(BadTimings::Retry)),
        ];
        for (lease, renew, retry, expected) in rows {
            let of = Duration::from_millis;
            assert_eq!(Timings::new(of(lease), of(renew), of(retry)), expected);
        }
    }
}
