//! Conditions of a pool, and how a new finding replaces an old one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{
    condition::PoolCondition,
    meta::{ConditionStatus, LooseCondition},
};

/// What was found about one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Finding {
    /// It holds.
    #[must_use]
    pub fn yes(reason: &str, message: &str) -> Self {
        Self::new(ConditionStatus::True, reason, message)
    }

    /// It does not.
    #[must_use]
    pub fn no(reason: &str, message: &str) -> Self {
        Self::new(ConditionStatus::False, reason, message)
    }

    fn new(status: ConditionStatus, reason: &str, message: &str) -> Self {
        Self { status, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Whether it holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// Puts a finding among `conditions`.
///
/// One that says nothing new changes nothing. The time moves only with the status. A changed
/// condition goes to the end of the list, as in the reference.
pub fn set(conditions: &mut Vec<LooseCondition>, kind: &PoolCondition, found: Finding, now: &Time) {
    let place = conditions.iter().position(|condition| condition.kind == kind.as_str());
    let mut since = Some(now.clone());
    if let Some(before) = place.and_then(|place| conditions.get(place)) {
        let same_status = before.status == found.status.as_str();
        if same_status && before.reason == found.reason && before.message == found.message {
            return;
        }
        if same_status {
            since.clone_from(&before.last_transition_time);
        }
    }
    if let Some(place) = place {
        conditions.remove(place);
    }
    conditions.push(LooseCondition {
        kind: kind.as_str().to_owned(),
        status: found.status.as_str().to_owned(),
        last_transition_time: since,
        reason: found.reason,
        message: found.message,
    });
}

/// Whether the condition of that kind is there and holds.
#[must_use]
pub fn holds(conditions: &[LooseCondition], kind: &PoolCondition) -> bool {
    conditions
        .iter()
        .find(|condition| condition.kind == kind.as_str())
        .is_some_and(|condition| condition.status == ConditionStatus::True.as_str())
}
