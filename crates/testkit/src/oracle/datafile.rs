//! Suite: file contents inside a config, and the bytes the reference decodes.

use base64::{Engine, engine::general_purpose::STANDARD};
use mco_ignition::content::{self, ContentLimit};
use serde::Deserialize;
use serde_json::Value;

use super::{parsed, text};

#[derive(Deserialize)]
struct Input {
    source: Option<String>,
    compression: Option<String>,
}

/// Checks for the same bytes, or an error at the same step.
pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let Input { source, compression } = parsed(input)?;
    let ours = content::decode(source.as_deref(), compression.as_deref(), ContentLimit::DEFAULT);
    let agree = match &ours {
        Ok(bytes) => text(expect, "contentsBase64") == Some(&STANDARD.encode(bytes)),
        // The reference appends the cause to its error; `mco` keeps it separate.
        Err(error) => {
            text(expect, "error").is_some_and(|text| text.starts_with(&error.to_string()))
        }
    };
    if agree {
        return Ok(());
    }
    Err(format!("{input}: expected {expect}, got {ours:?}"))
}
