//! Fuzzes the API server: patches of all four types.
//!
//! Run with `cargo +nightly fuzz run api_patch`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/apiserver/tests/it/request_rules.rs"]
#[allow(dead_code, reason = "each target checks one rule")]
mod request_rules;

thread_local! {
    static API: request_rules::Api = request_rules::Api::new();
}

fuzz_target!(|raw: &[u8]| {
    API.with(|api| api.check_patch(raw));
});
