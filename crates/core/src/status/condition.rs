//! Conditions of a pool and their update rule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{
    condition::PoolCondition,
    meta::{ConditionStatus, LooseCondition},
};

/// The new value of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Status of the condition.
    pub status: ConditionStatus,
    /// Reason in CamelCase, for programs.
    pub reason: String,
    /// Message for the administrator.
    pub message: String,
}

impl Finding {
    /// Returns a value with status True.
    #[must_use]
    pub fn yes(reason: &str, message: &str) -> Self {
        Self::new(ConditionStatus::True, reason, message)
    }

    /// Returns a value with status False.
    #[must_use]
    pub fn no(reason: &str, message: &str) -> Self {
        Self::new(ConditionStatus::False, reason, message)
    }

    /// Returns a value with status Unknown.
    #[must_use]
    pub fn unknown(reason: &str, message: &str) -> Self {
        Self::new(ConditionStatus::Unknown, reason, message)
    }

    fn new(status: ConditionStatus, reason: &str, message: &str) -> Self {
        Self { status, reason: reason.to_owned(), message: message.to_owned() }
    }

    /// Returns true if the status is True.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.status == ConditionStatus::True
    }
}

/// Sets a condition in `conditions`.
///
/// An equal value changes nothing. The transition time changes only with the status. A changed
/// condition moves to the end of the list, as in the reference.
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

/// Returns true if the condition of that kind exists and is True.
#[must_use]
pub fn holds(conditions: &[LooseCondition], kind: &PoolCondition) -> bool {
    conditions
        .iter()
        .find(|condition| condition.kind == kind.as_str())
        .is_some_and(|condition| condition.status == ConditionStatus::True.as_str())
}
