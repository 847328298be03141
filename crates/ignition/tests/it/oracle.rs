//! Recorded cases of the reference, where a checkout has them.

use std::path::PathBuf;

use serde_json::Value;

/// The cases of one suite, or `None`, with a word about it, where they are not at hand.
#[expect(clippy::disallowed_methods, reason = "tests find and read the recorded cases themselves")]
pub(crate) fn cases(suite: &str) -> Option<Vec<Value>> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/oracle");
    let root = std::env::var("MCO_ORACLE_DIR").unwrap_or_else(|_| default.to_owned());
    let path = PathBuf::from(root).join(suite).join("cases.jsonl");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: no recorded cases at {}", path.display());
        return None;
    };
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}
