//! Fuzzes the API server: patches of all four types.
//!
//! Run with `cargo +nightly fuzz run api_patch`.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

#[path = "../../crates/apiserver/tests/it/request_rules.rs"]
#[allow(dead_code, reason = "each target checks one rule")]
mod request_rules;

thread_local! {
    static API: request_rules::Api = request_rules::Api::new();
}

fuzz_target!(|raw: &[u8]| {
    API.with(|api| api.check_patch(raw));
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, number: u32| {
    let seeded = request_rules::seed(request_rules::CHANGES, data, number);
    seeded.unwrap_or_else(|| fuzzer_mutate(data, size, max_size))
});
