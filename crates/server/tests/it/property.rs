//! The rules of requests, on random ones.

use proptest::prelude::*;

use crate::request_rules::check;

/// Texts that a path or a header may have, weighted towards those with a meaning.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => prop::sample::select(vec![
            "/", "//", ".", "..", "/config", "/config/", "worker", "%2e", "%2F", "%", "%zz", "%00", "?",
            "#", "a=b", "*", "healthz", "gzip", "identity", ";q=", "0.5", "1.001", ",", ";", "W/",
            "\"a-tag\"", "\"", "application/vnd.coreos.ignition+json", ";version=", "3.5.0", "2.2.0",
            "99999999999999999999.0.0", "-", " ", "\u{e9}", "\\",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,4}",
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn no_request_breaks_a_rule(
        method in prop::sample::select(vec!["GET", "HEAD", "POST", "CONNECT", "OPTIONS", "x"]),
        target in text(),
        header in text(),
    ) {
        check(method.as_bytes(), target.as_bytes(), header.as_bytes());
        check(method.as_bytes(), format!("/{target}").as_bytes(), header.as_bytes());
    }

    #[test]
    fn no_bytes_break_a_rule(
        method in prop::collection::vec(any::<u8>(), 0..8),
        target in prop::collection::vec(any::<u8>(), 0..40),
        header in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        check(&method, &target, &header);
    }
}
