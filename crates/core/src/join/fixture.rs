//! Tokens and machines for tests.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use mco_api::join_token::{Binding, JoinToken};

use super::{MachineFacts, StoredToken, TokenText};

/// Seconds after the start of the tests' time.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

/// Returns the text of token `number`.
pub(crate) fn text(number: u32) -> TokenText {
    TokenText::parse(&format!("token{number:03}.{number:032}")).unwrap()
}

/// Returns token `number`: for pool worker and one machine, valid for an hour.
pub(crate) fn stored(number: u32, change: impl FnOnce(&mut JoinToken)) -> StoredToken {
    let mut token = JoinToken {
        pool: "worker".to_owned(),
        secret_sha256: text(number).secret_sha256(),
        created: Time(at(0)),
        expires: Time(at(3600)),
        uses: 1,
        binding: Binding::default(),
        description: String::new(),
    };
    change(&mut token);
    StoredToken { id: text(number).id().to_owned(), token, joins: Vec::new() }
}

/// Returns machine `number`, which is known by its join id.
pub(crate) fn machine(number: u32) -> MachineFacts {
    let mut machine = MachineFacts::at(format!("10.0.0.{number}").parse().unwrap());
    machine.join_id = format!("join-{number}");
    machine
}
