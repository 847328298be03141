//! The four patch formats: JSON patch, merge patch, strategic merge patch and server-side apply.

pub(crate) mod fields;
pub(crate) mod ssa;
pub(crate) mod strategic;

use serde_json::Value;

use crate::{failure::Failure, object, resource::Resource};

const BUILTIN_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
    application/apply-patch+yaml, application/strategic-merge-patch+json";
const CUSTOM_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
    application/apply-patch+yaml";

/// A decoded patch.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
    Strategic(Value),
    Apply(Value),
}

/// Decodes a patch of the given media type.
pub(crate) fn read(media: &str, body: &[u8], resource: &Resource) -> Result<Patch, Failure> {
    let bad =
        |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
    let map = || -> Result<Value, Failure> {
        let value: Value = serde_json::from_slice(body).map_err(bad)?;
        if value.is_object() {
            return Ok(value);
        }
        Err(Failure::bad_request("error decoding patch: it is not a JSON object"))
    };
    match media {
        "application/json-patch+json" => serde_json::from_slice(body).map(Patch::Json).map_err(bad),
        "application/merge-patch+json" => map().map(Patch::Merge),
        "application/strategic-merge-patch+json" if !resource.custom => map().map(Patch::Strategic),
        // kubectl and the components of `mco` send JSON, which is valid YAML.
        "application/apply-patch+yaml" => map().map(Patch::Apply),
        _ => Err(Failure::media_type(if resource.custom { CUSTOM_TYPES } else { BUILTIN_TYPES })),
    }
}

/// Returns the object after a patch other than server-side apply.
pub(crate) fn apply(patch: &Patch, resource: &Resource, current: &Value) -> Result<Value, Failure> {
    let mut new = current.clone();
    match patch {
        Patch::Json(patch) => {
            json_patch::patch(&mut new, patch).map_err(|error| {
                let name = object::name(current);
                let mut failure = Failure::invalid(resource, name, &[]);
                failure.message = format!(
                    "the server rejected our request due to an error in our request: {error}"
                );
                failure
            })?;
        }
        Patch::Merge(patch) => json_patch::merge(&mut new, patch),
        Patch::Strategic(patch) => strategic::merge(&mut new, patch),
        Patch::Apply(_) => {}
    }
    if new.is_object() {
        return Ok(new);
    }
    Err(Failure::bad_request("the patch leaves no object"))
}
