//! The objections of strict decoding: fields that are unknown, or given twice.

use http::Response;

use super::super::{Body, Call, answer};
use crate::{admit::Admitted, body, failure::Failure, field_path::MAX_PATHS};

/// Returns what strict decoding objects to.
pub(super) fn notes(objections: &[String], admitted: &Admitted) -> Vec<String> {
    let unknown = admitted.unknown.iter().map(|one| format!("unknown field {one:?}"));
    objections.iter().cloned().chain(unknown).take(MAX_PATHS).collect()
}

/// Fails if decoding is strict and has an objection.
pub(super) fn strict(call: &Call, notes: &[String]) -> Result<(), Failure> {
    if call.query.field_validation == "Strict" && !notes.is_empty() {
        return Err(Failure::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            call.resource.kind,
            call.resource.version,
            call.resource.kind,
            notes.join(", ")
        )));
    }
    Ok(())
}

/// Adds the objections to an answer as warnings, unless they are ignored.
pub(super) fn warn(call: &Call, notes: &[String], response: &mut Response<Body>) {
    if matches!(call.query.field_validation.as_str(), "Warn" | "") {
        let notes: Vec<&str> =
            notes.iter().map(|note| note.strip_prefix(body::YAML_NOTE).unwrap_or(note)).collect();
        answer::warn(response, &notes);
    }
}
