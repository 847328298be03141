//! Fuzzes the decisions about a request: its method, its target and its headers.
//!
//! Run with `cargo +nightly fuzz run request`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/server/tests/it/request_rules.rs"]
mod request_rules;

fuzz_target!(|raw: &[u8]| {
    let mut parts = raw.splitn(3, |byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    request_rules::check(next(), next(), next());
});
