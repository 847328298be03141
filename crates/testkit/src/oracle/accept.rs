//! Suite: an Accept header, and the Ignition version the reference serves.

use mco_ignition::negotiate;
use serde::Deserialize;
use serde_json::Value;

use super::parsed;

#[derive(Deserialize)]
struct Input {
    accept: String,
}

/// Checks for the same version, or the same error, byte for byte.
pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let Input { accept: header } = parsed(input)?;
    let ours = match negotiate(&header) {
        Ok(target) => serde_json::json!({ "version": target.as_str() }),
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    };
    if ours == *expect {
        return Ok(());
    }
    Err(format!("{header:?}: expected {expect}, got {ours}"))
}
