//! How long drains may take, pool by pool.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use mco_api::{
    annotation::{self, Key},
    duration::{self, Span},
};

/// What an admin may ask for: a drain is never overdue at once, and somebody hears of it within a week.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(168);

/// Shorter than this no pod goes; longer than this nobody hears what is wrong.
const ATTEMPTS: RangeInclusive<Duration> = Duration::from_secs(10)..=Duration::from_hours(1);

/// A drain counts as slow after this share of the time that it has.
const SLOW_SHARE: u32 = 6;

/// How long drains may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long one attempt goes on before it counts as failed.
    pub attempt: Duration,
    /// From this age on a drain is tried less often, and an event says so.
    pub slow: Duration,
    /// From this age on a person must look.
    pub overdue: Duration,
}

/// A limit that a pool asks for and that cannot be; the default holds instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTimeout {
    key: &'static str,
    text: String,
    why: String,
    default: Duration,
}

impl Limits {
    /// Those of the reference.
    pub const REFERENCE: Self = Self {
        attempt: Duration::from_secs(90),
        slow: Duration::from_mins(10),
        overdue: Duration::from_hours(1),
    };

    /// Those that a pool's annotations ask for, and what is wrong with them.
    #[must_use]
    pub fn of(annotations: &BTreeMap<String, String>, default: Self) -> (Self, Vec<BadTimeout>) {
        let mut faults = Vec::new();
        let mut read = |key: &Key<Span>, range: &RangeInclusive<Duration>, default| {
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
    key: &Key<Span>,
    annotations: &BTreeMap<String, String>,
    range: &RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, BadTimeout> {
    let Some(text) = annotations.get(key.name()) else { return Ok(default) };
    let bad = |why: String| BadTimeout { key: key.name(), text: text.clone(), why, default };
    let Span(found) =
        text.parse().map_err(|fault: duration::BadDuration| bad(fault.to_string()))?;
    if range.contains(&found) {
        return Ok(found);
    }
    let (least, most) = (duration::go(*range.start()), duration::go(*range.end()));
    Err(bad(format!("it must be between {least} and {most}")))
}

impl BadTimeout {
    /// What to tell people, and what they can do.
    #[must_use]
    pub fn text(&self, pool: &str) -> String {
        let Self { key, text, why, default } = self;
        let default = duration::go(*default);
        format!(
            "pool {pool}: the annotation {key} is {text:?}: {why}. The default of {default} holds. \
             Write a length of time such as 30m or 2h, or remove the annotation."
        )
    }
}
