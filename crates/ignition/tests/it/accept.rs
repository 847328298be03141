//! Negotiation, against the reference.

use mco_ignition::negotiate;
use serde_json::Value;

use crate::oracle;

#[test]
fn negotiates_as_the_reference() {
    oracle::run("accept", check_accept);
}

/// The same version, or the same refusal word for word.
pub(crate) fn check_accept(input: &Value, expect: &Value) -> Result<(), String> {
    let header = input["accept"].as_str().unwrap_or_default();
    let ours = match negotiate(header) {
        Ok(target) => serde_json::json!({ "version": target.as_str() }),
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    };
    if ours == *expect {
        return Ok(());
    }
    Err(format!("{header:?}: expected {expect}, got {ours}"))
}
