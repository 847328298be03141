//! Reading against the recorded answers of the reference.

use std::collections::BTreeSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mco_ignition::{ReadError, check, read, report::Severity};
use serde_json::Value;

use crate::oracle;

#[test]
fn documents_are_read_as_the_reference_reads_them() {
    oracle::run("parse", check_parse);
}

/// Compares what we make of a document with what the reference made of it.
pub(crate) fn check_parse(input: &Value, expect: &Value) -> Result<(), String> {
    let raw = match input["rawBase64"].as_str() {
        Some(encoded) => BASE64_STANDARD.decode(encoded).map_err(|error| error.to_string())?,
        None => input["raw"].as_str().unwrap_or_default().as_bytes().to_vec(),
    };
    match (read(&raw), expect["error"].as_str()) {
        (Ok(document), None) => {
            let config = document.clone().upgrade().map_err(|error| format!("{error}"))?;
            let json = String::from_utf8(config.to_json()).map_err(|error| error.to_string())?;
            same("config", &json, expect["json"].as_str().unwrap_or_default())?;
            let verdict = check(&config);
            if document.check() != verdict {
                return Err("the quick check says something else than the full one".to_owned());
            }
            let text = verdict.err().map(|error| error.to_string()).unwrap_or_default();
            same("verdict", &text, expect["validateError"].as_str().unwrap_or_default())
        }
        (Ok(document), Some(text)) => match document.upgrade() {
            Ok(_) => Err(format!("accepted, expected {text}")),
            Err(_) => Ok(()),
        },
        (Err(error), None) => Err(format!("refused: {error}")),
        (Err(error), Some(text)) => same_refusal(&error, text),
    }
}

/// The first line is promised; of the report, the places of the errors must agree.
fn same_refusal(error: &ReadError, expected: &str) -> Result<(), String> {
    let text = format!("failed to parse Ignition config: {error}");
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    same("first line", &first(&text), &first(expected))?;
    if !matches!(error, ReadError::V3(_)) {
        return Ok(());
    }
    let faults = error.report().map(|report| report.faults.as_slice()).unwrap_or_default();
    let errors = faults.iter().filter(|fault| fault.severity == Severity::Error);
    let ours: BTreeSet<String> = errors.map(ToString::to_string).collect();
    let theirs: BTreeSet<String> = expected.lines().filter_map(|line| known_error(line)).collect();
    if theirs.is_empty() {
        Ok(())
    } else {
        same("errors", &format!("{ours:#?}"), &format!("{theirs:#?}"))
    }
}

/// A line of the reference's report that names a path, less what its base64 and escape decoders
/// say of themselves. Lines without a path speak of Go's JSON decoder; we say in our own words
/// where a value of the wrong type or a syntax error stands.
fn known_error(line: &str) -> Option<String> {
    let line = line.trim_start_matches("Report: ");
    let (place, message) = line.strip_prefix("error at $")?.split_once(": ")?;
    let message = if message.starts_with("illegal base64 data at") {
        "illegal base64 data"
    } else if message.starts_with("rfc2396: ") {
        "invalid percent escape"
    } else {
        message
    };
    Some(format!("error at ${place}: {message}"))
}

fn same(what: &str, ours: &str, theirs: &str) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{what} differs\n  ours:   {ours}\n  theirs: {theirs}"))
}
