//! Inline contents, against the reference.

use base64::{Engine, engine::general_purpose::STANDARD};
use mco_ignition::content::{self, Limit};
use serde_json::Value;

use crate::oracle;

#[test]
fn decodes_contents_as_the_reference() {
    oracle::run("datafile", check_datafile);
}

/// The same bytes, or a refusal at the same step.
pub(crate) fn check_datafile(input: &Value, expect: &Value) -> Result<(), String> {
    let text = |member: &str| input[member].as_str();
    let ours = content::decode(text("source"), text("compression"), Limit::DEFAULT);
    let agree = match &ours {
        Ok(bytes) => expect["contentsBase64"].as_str() == Some(&STANDARD.encode(bytes)),
        // The reference appends its cause, we keep it apart.
        Err(error) => {
            expect["error"].as_str().is_some_and(|text| text.starts_with(&error.to_string()))
        }
    };
    if agree {
        return Ok(());
    }
    Err(format!("{input}: expected {expect}, got {ours:?}"))
}
