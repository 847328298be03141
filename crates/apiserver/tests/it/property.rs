//! The rules of requests, on random ones.

use proptest::prelude::*;

use crate::request_rules::{self, Api};

/// Texts of these parts and of any others.
fn text(parts: &'static [&'static str]) -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => prop::sample::select(parts).prop_map(str::to_owned),
        1 => "\\PC{0,4}",
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

const TARGETS: &[&str] = &[
    "/",
    "/api",
    "/apis",
    "/v1",
    "/nodes",
    "/x",
    "/namespaces",
    "/default",
    "/pods",
    "/configmaps",
    "/status",
    "/scale",
    "/log",
    "/apps",
    "/deployments",
    "/openapi",
    "/v3",
    "/v2",
    "?",
    "&",
    "=",
    "watch=true",
    "dryRun=All",
    "limit=1",
    "continue=",
    "resourceVersion=1",
    "hash=",
    "%2e",
    "%",
    "%00",
    "%ff",
    "labelSelector=",
    "a%3Db",
    "gracePeriodSeconds=-1",
    "propagationPolicy=Orphan",
];

const VALUES: &[&str] = &[
    "application/json",
    "application/yaml",
    ";as=Table",
    ";v=v1",
    ";g=meta.k8s.io",
    ",",
    "*/*",
    "q=0",
    "\"",
    "application/merge-patch+json",
    "protobuf",
    "kubectl/1",
    "as=APIGroupDiscoveryList",
];

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"metadata\"",
    "\"name\"",
    "\"x\"",
    "\"spec\"",
    "\"data\"",
    "\"op\"",
    "\"path\"",
    "\"add\"",
    "\"/metadata/labels\"",
    "\"value\"",
    "\"$patch\"",
    "\"delete\"",
    "null",
    "1",
    "-1e9",
    "true",
    "\"labels\"",
    "\"containers\"",
    "{}",
    "[]",
    "\"apiVersion\": \"v1\"",
    "\\u0000",
    "\n",
    "- ",
    "k8s\u{0}",
    "*a",
    "&a ",
    "\"finalizers\"",
    "\"ownerReferences\"",
    "\"managedFields\"",
];

const SELECTORS: &[&str] = &[
    "a",
    "b",
    "=",
    "==",
    "!=",
    "!",
    ",",
    " in ",
    " notin ",
    "(",
    ")",
    ">",
    "<",
    "1",
    "/",
    ".",
    "-",
    "_",
    " ",
    "metadata.name",
    "spec.nodeName",
    "x",
    "\\,",
    "\"",
    "kubernetes.io/",
];

const EXPRESSIONS: &[&str] = &[
    "object",
    "oldObject",
    "request",
    ".",
    "metadata",
    "data",
    "name",
    "[",
    "]",
    "(",
    ")",
    "'a'",
    "1",
    "0",
    "-",
    "+",
    "*",
    "/",
    "%",
    "&&",
    "||",
    "!",
    "==",
    "<",
    "?",
    ":",
    "has(",
    "size(",
    ".all(x, ",
    ".map(x, ",
    ".exists(x, ",
    "x",
    "in",
    "{",
    "}",
    ",",
    "matches(",
    "'('",
    "null",
    "true",
    "9223372036854775807",
    "duration('1s')",
    "string(",
    "int(",
    "timestamp(",
    "variables",
    "params",
    "\"",
];

const PATHS: &[&str] = &[
    ".",
    "spec",
    "n",
    "list",
    "[",
    "]",
    "0",
    "-1",
    "*",
    ":",
    "?",
    "(",
    ")",
    "@",
    "==",
    "'a'",
    "\"b\"",
    "..",
    "name",
    "$",
    "{",
    "}",
    ",",
    "metadata",
    "creationTimestamp",
    "99999999999999999999",
    "\\",
];

/// A random text for each rule.
fn words() -> impl Strategy<Value = [String; 4]> {
    [text(JSON), text(SELECTORS), text(EXPRESSIONS), text(PATHS)]
}

#[test]
fn no_request_breaks_a_rule() {
    let api = Api::new();
    let methods = prop::sample::select(vec!["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "x"]);
    let config = ProptestConfig::with_cases(400);
    proptest!(config, |(
        method in methods, target in text(TARGETS), value in text(VALUES), words in words(),
    )| {
        let [body, selector, expression, path] = words;
        api.check_request(method.as_bytes(), target.as_bytes(), value.as_bytes(), body.as_bytes());
        api.check_body(body.as_bytes());
        api.check_patch(body.as_bytes());
        api.check_selector(&selector);
        api.check_expression(&expression);
        api.check_column(&path);
    });
}

#[test]
fn no_bytes_break_a_rule() {
    let api = Api::new();
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let config = ProptestConfig::with_cases(200);
    proptest!(config, |(target in bytes(), value in bytes(), body in bytes())| {
        api.check_request(b"GET", &target, &value, &body);
        api.check_body(&body);
        api.check_patch(&body);
        let text = String::from_utf8_lossy(&body);
        api.check_selector(&text);
        api.check_expression(&text);
        api.check_column(&text);
    });
}

#[test]
fn deep_bodies_and_expressions_are_refused_in_time() {
    let api = Api::new();
    for (open, close) in
        [("{\"a\":", "}"), ("[", "]"), ("(", ")"), ("- ", ""), ("!", ""), ("-", "")]
    {
        let deep = format!("{}1{}", open.repeat(20_000), close.repeat(20_000));
        api.check_body(deep.as_bytes());
        api.check_patch(deep.as_bytes());
        api.check_expression(&deep);
        api.check_column(&deep);
    }
}

#[test]
fn the_seeds_of_the_fuzzers_follow_the_rules() {
    let api = Api::new();
    for seed in request_rules::REQUESTS {
        let parts: Vec<&[u8]> = seed.splitn(4, |byte| *byte == b'\n').collect();
        api.check_request(parts[0], parts[1], parts[2], parts[3]);
    }
    for seed in request_rules::NEW {
        assert!(api.check_body(seed) > 0, "{}", String::from_utf8_lossy(seed));
    }
    for seed in request_rules::CHANGES {
        api.check_patch(seed);
    }
    for seed in request_rules::SELECTORS {
        api.check_selector(&String::from_utf8_lossy(seed));
    }
    for seed in request_rules::EXPRESSIONS {
        api.check_expression(&String::from_utf8_lossy(seed));
    }
    for seed in request_rules::COLUMNS {
        api.check_column(&String::from_utf8_lossy(seed));
    }
    let mut data = [0; 4096];
    let first = request_rules::seed(request_rules::COLUMNS, &mut data, 0);
    assert_eq!(first.map(|size| &data[..size]), request_rules::COLUMNS.first().copied());
    assert_eq!(request_rules::seed(request_rules::COLUMNS, &mut data, 1), None);
    assert_eq!(request_rules::seed(request_rules::COLUMNS, &mut data[..4], 0), None);
}
