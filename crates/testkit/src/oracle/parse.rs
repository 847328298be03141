//! Suite: raw Ignition configs, and the reference's parse result.

use std::collections::BTreeSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mco_ignition::{ReadError, read, report::Severity};
use serde::Deserialize;
use serde_json::Value;

use super::{parsed, text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    raw: Option<String>,
    raw_base64: Option<String>,
}

/// Checks for the same config and validation result, or an error of the same kind.
pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    match (read(&raw(input)?), text(expect, "error")) {
        (Ok(document), None) => {
            let config = document.clone().upgrade().map_err(|error| format!("{error}"))?;
            let json = String::from_utf8(config.to_json()).map_err(|error| error.to_string())?;
            same("config", &json, text(expect, "json").unwrap_or_default())?;
            let verdict = mco_ignition::check(&config);
            if document.check() != verdict {
                return Err("the quick check and the full parser disagree".to_owned());
            }
            let verdict = verdict.err().map(|error| error.to_string()).unwrap_or_default();
            same("verdict", &verdict, text(expect, "validateError").unwrap_or_default())
        }
        (Ok(document), Some(text)) => match document.upgrade() {
            Ok(_) => Err(format!("accepted, expected {text}")),
            Err(error) => same_obstacle(&error.to_string(), text),
        },
        (Err(error), None) => Err(format!("rejected: {error}")),
        (Err(error), Some(text)) => same_refusal(&error, text),
    }
}

fn raw(input: &str) -> Result<Vec<u8>, String> {
    let Input { raw, raw_base64 } = parsed(input)?;
    match raw_base64 {
        Some(encoded) => BASE64_STANDARD.decode(encoded).map_err(|error| error.to_string()),
        None => Ok(raw.unwrap_or_default().into_bytes()),
    }
}

/// The first line contains the kind of the error and is promised.
fn same_refusal(error: &ReadError, expected: &str) -> Result<(), String> {
    if is_type_fault_of_v2(error, expected) {
        return Ok(());
    }
    let text = format!("failed to parse Ignition config: {error}");
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    same("first line", &first(&text), &first(expected))
}

/// Checks more than is promised: the same errors in the report, at the same positions.
pub(super) fn check_report(input: &str, expect: &Value) -> Result<(), String> {
    let Some(expected) = text(expect, "error") else { return Ok(()) };
    let Err(ReadError::V3(report)) = read(&raw(input)?) else { return Ok(()) };
    // Lines without a path come from Go's JSON decoder. `mco` has its own text for values of the
    // wrong type and syntax errors.
    let theirs: Vec<&str> =
        expected.lines().map(|line| line.trim_start_matches("Report: ")).collect();
    let theirs: Vec<&str> =
        theirs.into_iter().filter(|line| line.starts_with("error at $")).collect();
    if theirs.is_empty() {
        return Ok(());
    }
    // The reference has no position for values below a key in the wrong case; `mco` has.
    let has_positions = report.faults.iter().all(|fault| !fault.message.contains("is read as"));
    let errors = report.faults.iter().filter(|fault| fault.severity == Severity::Error);
    let ours: BTreeSet<String> =
        errors.map(|fault| comparable(&fault.to_string(), has_positions)).collect();
    let theirs: BTreeSet<String> =
        theirs.into_iter().map(|line| comparable(line, has_positions)).collect();
    // If several partitions of a disk collide, the reference names one of them at random.
    let is_comparable = |line: &&String| !COLLISIONS.iter().any(|message| line.ends_with(message));
    if !ours.is_superset(&theirs) || !ours.difference(&theirs).all(|line| !is_comparable(&line)) {
        return same("errors", &format!("{ours:#?}"), &format!("{theirs:#?}"));
    }
    Ok(())
}

/// Compares the errors that prevent the translation of a 2.x config. Their text is promised, except
/// for reports.
fn same_obstacle(ours: &str, theirs: &str) -> Result<(), String> {
    let known = |text: &str| {
        let line = text.lines().next().unwrap_or_default();
        line.find(": error at ")
            .or(line.find(": warning at "))
            .and_then(|at| line.get(..at))
            .unwrap_or(line)
            .to_owned()
    };
    same("obstacle", &known(ours), &known(theirs))
}

/// Returns true if a value of a 2.x document has the wrong type. The reference then tries the
/// parsers of older versions in turn and reports the error of the last one, often an unknown
/// version; `mco` names the value.
pub(super) fn is_type_fault_of_v2(error: &ReadError, expected: &str) -> bool {
    let of_readers = ["unknown version", "config is not valid", "called with a valid config"];
    // Version 2.0 reports an invalid hash or address as a value of the wrong type.
    let faults = ["needed here", "malformed hash specifier", "unable to parse url"];
    let ours = match error {
        ReadError::V2 { report, .. } => {
            let report = report.to_string();
            faults.iter().any(|fault| report.contains(fault))
        }
        ReadError::UnknownVersion => {
            expected.contains("cannot unmarshal") || expected.contains("called with a valid config")
        }
        ReadError::Empty | ReadError::InvalidVersion | ReadError::V3(_) => false,
    };
    ours && of_readers.iter().any(|text| expected.contains(text))
}

const COLLISIONS: &[&str] = &[
    "partition numbers collide",
    "partitions overlap",
    "cannot use the same partition label twice",
];

/// Returns the position and message of an error. For an invalid data URL only the position, because
/// every decoder has its own text.
fn comparable(line: &str, has_positions: bool) -> String {
    const PLACES: &[&str] = &[".source", ".merge.", ".certificateAuthorities."];
    const SAME: &[&str] = &[
        "invalid url scheme",
        "unable to parse url",
        "source is required",
        "duplicate entry defined",
        "invalid S3",
    ];
    let (place, message) = line.split_once(": ").unwrap_or((line, ""));
    let path = place.split(',').next().unwrap_or_default();
    let place = if has_positions { place } else { path };
    let in_url = PLACES.iter().any(|part| path.contains(part)) && !path.contains("verification");
    if in_url && !SAME.iter().any(|known| message.starts_with(known)) {
        return place.to_owned();
    }
    format!("{place}: {message}")
}

fn same(what: &str, ours: &str, theirs: &str) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{what} differs\n  ours:   {ours}\n  theirs: {theirs}"))
}
