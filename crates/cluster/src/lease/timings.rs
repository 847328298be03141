//! How long a lease holds, and how often it is renewed.

use std::time::Duration;

/// How long a lease holds, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long an unchanged lease keeps others out.
    pub lease: Duration,
    /// How long the leader goes on without a renewal; shorter than the lease.
    pub renew: Duration,
    /// Pause between two tries.
    pub retry: Duration,
}

/// Times with which two processes could lead at once, or none for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTimings {
    /// A lease is written in whole seconds.
    #[error("the lease must last for whole seconds, and for one at least")]
    Lease,
    /// The leader would still write when another may take over.
    #[error("the renew deadline must be shorter than the lease")]
    Renew,
    /// One failed try would cost the lease.
    #[error("the retry period must not be zero, and must fit twice into the renew deadline")]
    Retry,
}

impl Timings {
    /// A leader that was killed is followed within twenty seconds; client-go's defaults.
    pub const FAST: Self = Self::seconds(15, 10, 2);
    /// Survive a minute without an API server, as OpenShift asks of its operators: what the reference
    /// uses. A leader that was killed is missed for more than two minutes.
    pub const HIGHLY_AVAILABLE: Self = Self::seconds(137, 107, 26);

    const fn seconds(lease: u64, renew: u64, retry: u64) -> Self {
        let of = Duration::from_secs;
        Self { lease: of(lease), renew: of(renew), retry: of(retry) }
    }

    /// These times, if they keep a second leader out.
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
    fn times_that_let_two_lead_are_refused() {
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
