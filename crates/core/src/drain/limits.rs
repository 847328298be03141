//! Time limits of drains, configurable per pool.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use mco_api::{
    annotation::{self, Key},
    duration::{self, DurationText},
};

/// Allowed drain timeouts: long enough not to be overdue at once, short enough that an overdue
/// drain is reported within a week.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(168);

/// Allowed attempt timeouts: a shorter attempt evicts no pod, a longer one delays the report of its
/// error.
const ATTEMPTS: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_hours(1);

/// A drain counts as slow after this fraction of its timeout.
const SLOW_SHARE: u32 = 6;

/// Time limits of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Duration after which one attempt counts as failed.
    pub attempt: Duration,
    /// Age from which a drain is retried less often and an event is recorded.
    pub slow: Duration,
    /// Age from which the administrator has to intervene.
    pub overdue: Duration,
}

/// A time limit in a pool's annotation that is invalid; the default applies instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTimeout {
    key: &'static str,
    text: String,
    why: String,
    default: Duration,
}

impl Limits {
    /// Limits of the reference.
    pub const REFERENCE: Self = Self {
        attempt: Duration::from_secs(90),
        slow: Duration::from_mins(10),
        overdue: Duration::from_hours(1),
    };

    /// Reads the limits from a pool's annotations; returns invalid ones as faults.
    #[must_use]
    pub fn of(annotations: &BTreeMap<String, String>, default: Self) -> (Self, Vec<BadTimeout>) {
        let mut faults = Vec::new();
        let mut read = |key: &Key<DurationText>, range: &RangeInclusive<Duration>, default| {
            let found = span(key, annotations, range, default);
            found.unwrap_or_else(|fault| {
                faults.push(fault);
                default
            })
        };
        let overdue = read(&annotation::DRAIN_TIMEOUT, &TIMEOUTS, default.overdue);
        let attempt = read(&annotation::DRAIN_ATTEMPT_TIMEOUT, &ATTEMPTS, default.attempt);
        let slow = if overdue == default.overdue { default.slow } else { overdue / SLOW_SHARE };
        (Self { attempt, slow, overdue }, faults)
    }
}

fn span(
    key: &Key<DurationText>,
    annotations: &BTreeMap<String, String>,
    range: &RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, BadTimeout> {
    let Some(text) = annotations.get(key.name()) else { return Ok(default) };
    let bad = |why: String| BadTimeout { key: key.name(), text: text.clone(), why, default };
    let DurationText(found) =
        text.parse().map_err(|fault: duration::DurationError| bad(fault.to_string()))?;
    if range.contains(&found) {
        return Ok(found);
    }
    let (least, most) = (duration::format_go(*range.start()), duration::format_go(*range.end()));
    Err(bad(format!("must be between {least} and {most}")))
}

impl BadTimeout {
    /// Returns the message for the administrator, with a remedy.
    #[must_use]
    pub fn text(&self, pool: &str) -> String {
        let Self { key, text, why, default } = self;
        let default = duration::format_go(*default);
        format!(
            "pool {pool}: annotation {key} is {text:?}: {why}. Using the default {default}. \
            Set a duration such as 30m or 2h, or remove the annotation."
        )
    }
}
