//! Fuzzes the API server: the answers to a request: its method, its target, a header and its body.
//!
//! Run with `cargo +nightly fuzz run api_request`.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

#[path = "../../crates/apiserver/tests/it/request_rules.rs"]
#[allow(dead_code, reason = "each target checks one rule")]
mod request_rules;

thread_local! {
    static API: request_rules::Api = request_rules::Api::new();
}

fuzz_target!(|raw: &[u8]| {
    let mut parts = raw.splitn(4, |byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    API.with(|api| api.check_request(next(), next(), next(), next()));
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, number: u32| {
    let seeded = request_rules::seed(request_rules::REQUESTS, data, number);
    seeded.unwrap_or_else(|| fuzzer_mutate(data, size, max_size))
});
