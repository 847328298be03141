//! Admits a request for a config, or refuses it with a reason.
//!
//! A use of a token is one machine: the one with the join id that it sends, or else the one at its
//! address. The same machine is admitted again until its node was approved or the token expires,
//! because it may lose power at any time. Another machine is refused when all uses are taken.
//!
//! A token that does not exist and a wrong secret are one reason, decided before all others: without
//! the secret a client learns nothing about a token.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use mco_api::join_token::Join;

use super::{
    machine::{BoundTo, MachineFactError, MachineFacts, mismatch},
    token::{StoredToken, TokenText},
};

/// Maximum number of uses of a token. Each is recorded in the token's Secret, which is written as a
/// whole.
pub const MAX_USES: u32 = 500;

/// Time in which a repeated request of the same machine is not recorded again, so that a machine
/// that retries every second does not write every second.
pub const RECORD_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// Reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The request has no token.
    #[error("a join token is required; make one with `mco token create --pool POOL`")]
    NoToken,
    /// A header is not of the form that it must have.
    #[error("{0}")]
    Malformed(#[from] MachineFactError),
    /// No token has this id, or its secret is another one.
    #[error("the join token is not valid; make one with `mco token create --pool POOL`")]
    Unknown,
    /// The token expired.
    #[error("the join token expired at {0:.0}; make one with `mco token create --pool POOL`")]
    Expired(Timestamp),
    /// The token is for another pool.
    #[error("the join token is for pool {0}")]
    OtherPool(String),
    /// The token is for another machine.
    #[error("the join token is for another machine: its {0} differs")]
    OtherMachine(BoundTo),
    /// All uses are taken by other machines.
    #[error("the join token was used by {0} other machines, as many as it is for")]
    UsedUp(u32),
    /// The machine has joined.
    #[error("the machine with this join token has joined as node {0}")]
    Joined(String),
}

impl Refusal {
    /// Returns the reason in one word, for metrics and logs.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::NoToken => "no-token",
            Self::Malformed(_) => "malformed",
            Self::Unknown => "unknown",
            Self::Expired(_) => "expired",
            Self::OtherPool(_) => "other-pool",
            Self::OtherMachine(_) => "other-machine",
            Self::UsedUp(_) => "used-up",
            Self::Joined(_) => "joined",
        }
    }

    /// Returns true if the client did not prove to have a token.
    #[must_use]
    pub const fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::NoToken | Self::Unknown | Self::Malformed(_))
    }
}

/// An admitted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Joins to record before the response is sent; `None` if the recorded ones are recent.
    pub record: Option<Vec<Join>>,
    /// State of the machine before the request.
    pub machine: Known,
}

/// State of a machine before its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The request takes a use of the token.
    New,
    /// The machine has taken a use before.
    Before,
}

/// Decides about a request for the config of `pool`.
pub fn authorize(
    presented: &TokenText,
    stored: Option<&StoredToken>,
    pool: &str,
    machine: &MachineFacts,
    now: Timestamp,
) -> Result<Admission, Refusal> {
    if !presented.matches(stored.map(|stored| &stored.token)) {
        return Err(Refusal::Unknown);
    }
    let Some(StoredToken { token, joins, .. }) = stored else { return Err(Refusal::Unknown) };
    if token.pool != pool {
        return Err(Refusal::OtherPool(token.pool.clone()));
    }
    if now >= token.expires.0 {
        return Err(Refusal::Expired(token.expires.0));
    }
    if let Some(part) = mismatch(&token.binding, machine) {
        return Err(Refusal::OtherMachine(part));
    }
    let node = if machine.node.is_empty() { &token.binding.node } else { &machine.node };
    match joins.iter().position(|join| is_same(join, machine)) {
        Some(index) => repeat(joins, index, machine, node, now),
        None if joins.len() >= usize::try_from(token.uses).unwrap_or(usize::MAX) => {
            Err(Refusal::UsedUp(token.uses))
        }
        None => {
            let mut joins = joins.clone();
            joins.push(Join {
                id: machine.join_id.clone(),
                address: machine.address.to_string(),
                node: node.clone(),
                machine_id: machine.machine_id.clone(),
                first: Time(now),
                last: Time(now),
                approved: String::new(),
            });
            Ok(Admission { record: Some(joins), machine: Known::New })
        }
    }
}

/// Returns true if the join is of this machine.
fn is_same(join: &Join, machine: &MachineFacts) -> bool {
    if machine.join_id.is_empty() {
        join.id.is_empty() && join.address == machine.address.to_string()
    } else {
        join.id == machine.join_id
    }
}

/// Decides about a machine that has a use of the token.
fn repeat(
    joins: &[Join],
    index: usize,
    machine: &MachineFacts,
    node: &str,
    now: Timestamp,
) -> Result<Admission, Refusal> {
    let mut joins = joins.to_vec();
    let Some(join) = joins.get_mut(index) else { return Err(Refusal::Unknown) };
    if !join.approved.is_empty() {
        return Err(Refusal::Joined(join.approved.clone()));
    }
    let before = join.clone();
    join.address = machine.address.to_string();
    let replace = |member: &mut String, sent: &str| {
        if !sent.is_empty() {
            sent.clone_into(member);
        }
    };
    replace(&mut join.machine_id, &machine.machine_id);
    replace(&mut join.node, node);
    let is_due = now.duration_since(before.last.0) >= RECORD_INTERVAL;
    let record = is_due || *join != before;
    join.last = Time(now);
    Ok(Admission { record: record.then_some(joins), machine: Known::Before })
}

#[cfg(test)]
mod tests {
    use mco_api::join_token::Binding;
    use proptest::prelude::*;

    use super::*;
    use crate::join::fixture::{at, machine, stored, text};

    /// Decides about a request, and records it.
    fn ask(
        token: &mut StoredToken,
        machine: &MachineFacts,
        seconds: i64,
    ) -> Result<Known, Refusal> {
        let decided = authorize(&text(1), Some(token), "worker", machine, at(seconds))?;
        if let Some(joins) = decided.record {
            token.joins = joins;
        }
        Ok(decided.machine)
    }

    #[test]
    fn every_refusal_has_its_reason() {
        let mut used = stored(1, |_| {});
        ask(&mut used, &machine(1), 0).unwrap();
        let mut joined = used.clone();
        joined.joins[0].approved = "node-1".to_owned();
        let bound = stored(1, |token| token.binding.address = "10.0.0.9".to_owned());
        let of_master = stored(1, |token| token.pool = "master".to_owned());
        let fresh = stored(1, |_| {});
        let rows = [
            ("no such token", None, 1, at(0), Err("unknown")),
            ("a wrong secret", Some(&fresh), 2, at(0), Err("unknown")),
            // A client without the secret learns nothing else.
            ("a wrong secret of an expired token", Some(&fresh), 2, at(9999), Err("unknown")),
            ("a wrong secret of another pool's", Some(&of_master), 2, at(0), Err("unknown")),
            ("another pool", Some(&of_master), 1, at(0), Err("other-pool")),
            ("expired", Some(&fresh), 1, at(3600), Err("expired")),
            ("the last second", Some(&fresh), 1, at(3599), Ok(Known::New)),
            ("expired, known machine", Some(&used), 1, at(3600), Err("expired")),
            ("another machine's", Some(&bound), 1, at(0), Err("other-machine")),
            ("again", Some(&used), 1, at(900), Ok(Known::Before)),
            ("again after its node was approved", Some(&joined), 1, at(900), Err("joined")),
        ];
        for (case, token, secret, now, expected) in rows {
            let found = authorize(&text(secret), token, "worker", &machine(1), now);
            let found = found.map(|admitted| admitted.machine);
            assert_eq!(
                found.as_ref().map_err(Refusal::word),
                expected.as_ref().map_err(|word| *word),
                "{case}"
            );
        }
        let found = ask(&mut used, &machine(2), 900);
        assert_eq!(found, Err(Refusal::UsedUp(1)));
    }

    #[test]
    fn unknown_tokens_and_wrong_secrets_read_the_same() {
        let token = stored(1, |_| {});
        let ask = |stored| authorize(&text(2), stored, "worker", &machine(1), at(0)).unwrap_err();
        assert_eq!(ask(None).to_string(), ask(Some(&token)).to_string());
    }

    #[test]
    fn a_machine_is_known_by_its_join_id_or_else_by_its_address() {
        let mut token = stored(1, |_| {});
        let first = machine(1);
        assert_eq!(ask(&mut token, &first, 0), Ok(Known::New));
        let mut moved = first.clone();
        moved.address = "10.9.9.9".parse().unwrap();
        assert_eq!(ask(&mut token, &moved, 1), Ok(Known::Before), "its address changed");
        assert_eq!(token.joins[0].address, "10.9.9.9");
        let same_address = MachineFacts { join_id: "other".to_owned(), ..moved.clone() };
        assert_eq!(ask(&mut token, &same_address, 2), Err(Refusal::UsedUp(1)));
        let silent = MachineFacts::at(moved.address);
        assert_eq!(ask(&mut token, &silent, 2), Err(Refusal::UsedUp(1)), "it has no join id");

        let mut token = stored(1, |_| {});
        assert_eq!(ask(&mut token, &silent, 0), Ok(Known::New));
        assert_eq!(ask(&mut token, &silent, 1), Ok(Known::Before));
        assert_eq!(
            ask(&mut token, &MachineFacts::at([10, 0, 0, 2].into()), 1),
            Err(Refusal::UsedUp(1))
        );
        assert_eq!(ask(&mut token, &moved, 1), Err(Refusal::UsedUp(1)), "it now sends a join id");
    }

    #[test]
    fn a_record_has_what_the_machine_said_and_is_not_written_every_second() {
        let mut token = stored(1, |token| token.binding.node = "node-1".to_owned());
        let asked = |token: &StoredToken, machine: &MachineFacts, seconds| {
            authorize(&text(1), Some(token), "worker", machine, at(seconds)).unwrap().record
        };
        token.joins = asked(&token, &machine(1), 0).expect("a new machine is recorded");
        assert_eq!(token.joins[0].node, "node-1", "the name that the token is bound to");
        assert_eq!(asked(&token, &machine(1), 59), None);
        let later = asked(&token, &machine(1), 60).expect("a minute later");
        assert_eq!((later[0].first.0, later[0].last.0), (at(0), at(60)));
        let mut told = machine(1);
        told.machine_id = "f".repeat(32);
        let changed = asked(&token, &told, 1).expect("a new machine id is recorded at once");
        assert_eq!(changed[0].machine_id, told.machine_id);
    }

    prop_compose! {
        fn request()(number in 1..12_u32, by_address: bool, seconds in 0..4000_i64,
            secret in 1..3_u32, approve: bool) -> (MachineFacts, i64, u32, bool) {
            let mut machine = machine(number);
            if by_address {
                machine.join_id = String::new();
            }
            (machine, seconds, secret, approve)
        }
    }

    proptest! {
        #[test]
        fn no_order_of_requests_admits_more_machines_than_uses(
            uses in 0..6_u32,
            mut requests in proptest::collection::vec(request(), 0..60),
        ) {
            requests.sort_by_key(|(_, seconds, ..)| *seconds);
            let mut token = stored(1, |token| token.uses = uses);
            let mut admitted: Vec<MachineFacts> = Vec::new();
            for (machine, seconds, secret, approve) in requests {
                let decided =
                    authorize(&text(secret), Some(&token), "worker", &machine, at(seconds));
                let known = admitted.contains(&machine);
                let join = token.joins.iter().find(|join| is_same(join, &machine));
                let joined = join.is_some_and(|join| !join.approved.is_empty());
                let valid = secret == 1 && seconds < 3600;
                // The same machine is always admitted, until it has joined or the token expires.
                prop_assert_eq!(
                    decided.is_ok(),
                    valid && !joined && (known || admitted.len() < uses as usize)
                );
                if let Ok(decided) = decided {
                    prop_assert_eq!(decided.machine == Known::Before, known);
                    if !known {
                        prop_assert!(decided.record.is_some(), "a use that is not recorded");
                        admitted.push(machine);
                    }
                    token.joins = decided.record.unwrap_or(token.joins);
                } else if approve && let Some(join) = token.joins.first_mut() {
                    join.approved = "node".to_owned();
                }
                prop_assert!(token.joins.len() <= uses as usize);
                prop_assert_eq!(token.joins.len(), admitted.len());
            }
        }

        #[test]
        fn a_token_that_is_bound_admits_no_other_address(octet in 0..=255_u8) {
            let token = stored(1, |token| {
                token.binding = Binding { address: "10.0.0.9".to_owned(), ..Binding::default() };
            });
            let machine = MachineFacts::at([10, 0, 0, octet].into());
            let decided = authorize(&text(1), Some(&token), "worker", &machine, at(0));
            prop_assert_eq!(decided.is_ok(), octet == 9);
        }
    }
}
