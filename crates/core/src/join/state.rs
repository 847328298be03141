//! The state of a token as lists show it.

use std::fmt;

use k8s_openapi::jiff::Timestamp;

use super::token::StoredToken;

/// The state of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// A new machine may use it.
    Valid,
    /// Machines use it, and no other may.
    InUse,
    /// All machines that it is for have joined.
    UsedUp,
    /// Its time is over.
    Expired,
}

impl TokenState {
    /// Returns the state of a token.
    #[must_use]
    pub fn of(stored: &StoredToken, now: Timestamp) -> Self {
        let uses = usize::try_from(stored.token.uses).unwrap_or(usize::MAX);
        let is_full = stored.joins.len() >= uses;
        if is_full && stored.joins.iter().all(|join| !join.approved.is_empty()) {
            Self::UsedUp
        } else if now >= stored.token.expires.0 {
            Self::Expired
        } else if is_full {
            Self::InUse
        } else {
            Self::Valid
        }
    }
}

impl fmt::Display for TokenState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Valid => "valid",
            Self::InUse => "in use",
            Self::UsedUp => "used up",
            Self::Expired => "expired",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::{
        authorize,
        fixture::{at, machine, stored, text},
    };

    #[test]
    fn the_state_follows_uses_and_time() {
        let mut token = stored(1, |token| token.uses = 2);
        assert_eq!(TokenState::of(&token, at(0)), TokenState::Valid);
        assert_eq!(TokenState::of(&token, at(3600)), TokenState::Expired);
        for number in 1..=2 {
            let machine = machine(number);
            let admitted = authorize(&text(1), Some(&token), "worker", &machine, at(0)).unwrap();
            token.joins = admitted.record.unwrap();
        }
        assert_eq!(TokenState::of(&token, at(1)), TokenState::InUse);
        token.joins[0].approved = "a".to_owned();
        assert_eq!(TokenState::of(&token, at(1)), TokenState::InUse);
        token.joins[1].approved = "b".to_owned();
        assert_eq!(TokenState::of(&token, at(9999)), TokenState::UsedUp);
    }
}
