//! The four patch formats: JSON patch, merge patch, strategic merge patch and server-side apply.

mod fields;
pub(crate) mod managed;
mod place;
pub(crate) mod ssa;
mod strategic;
mod walk;

use serde_json::Value;

use self::place::Place;
use crate::{
    body,
    failure::{Failure, type_name},
    resource::Resource,
};

const PREFIX: &str = "error decoding patch: ";

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
    let prefix = if media == "application/strategic-merge-patch+json" { "" } else { PREFIX };
    let bad = |why: &str| Failure::bad_request(format!("{prefix}{why}"));
    let any = || -> Result<Value, Failure> {
        serde_json::from_slice(body).map_err(|error| bad(&body::explained(body, &error)))
    };
    let map = || -> Result<Value, Failure> {
        let value = any()?;
        if value.is_object() {
            return Ok(value);
        }
        let found = type_name(&value);
        let why = "into Go value of type map[string]interface {}";
        Err(bad(&format!("json: cannot unmarshal {found} {why}")))
    };
    match media {
        "application/json-patch+json" => operations(any()?),
        "application/merge-patch+json" => map().map(Patch::Merge),
        "application/strategic-merge-patch+json" if !resource.custom => map().map(Patch::Strategic),
        "application/apply-patch+yaml" => applied(body, resource).map(Patch::Apply),
        "application/strategic-merge-patch+json" => Err(Failure::media_type(CUSTOM_TYPES)),
        _ => Err(Failure::patch_type()),
    }
}

/// Decodes a JSON patch.
fn operations(list: Value) -> Result<Patch, Failure> {
    if !list.is_array() {
        let found = type_name(&list);
        let why = "into Go value of type []handlers.jsonPatchOp";
        return Err(Failure::bad_request(format!("{PREFIX}json: cannot unmarshal {found} {why}")));
    }
    serde_json::from_value(list).map(Patch::Json).map_err(|_| Failure::rejected_patch())
}

/// Decodes an applied object, in JSON or YAML.
fn applied(bytes: &[u8], resource: &Resource) -> Result<Value, Failure> {
    if let Ok(value @ Value::Object(_)) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    body::decode("application/yaml", bytes, &resource.kind).map(|read| read.value).map_err(
        |failure| Failure::bad_request(format!("error decoding YAML: {}", failure.message)),
    )
}

/// Returns the object after a patch other than server-side apply.
pub(crate) fn apply(patch: &Patch, current: &Value, resource: &Resource) -> Result<Value, Failure> {
    let mut new = current.clone();
    match patch {
        Patch::Json(patch) => {
            for operation in &patch.0 {
                apply_operation(&mut new, operation)?;
            }
        }
        Patch::Merge(patch) => json_patch::merge(&mut new, patch),
        Patch::Strategic(patch) => strategic::merge(Place::root(resource), &mut new, patch)?,
        Patch::Apply(_) => {}
    }
    if new.is_object() {
        return Ok(new);
    }
    Err(Failure::rejected_patch())
}

/// Applies one operation of a JSON patch.
fn apply_operation(
    target: &mut Value,
    operation: &json_patch::PatchOperation,
) -> Result<(), Failure> {
    let one = json_patch::Patch(vec![operation.clone()]);
    if json_patch::patch(target, &one).is_ok() {
        return Ok(());
    }
    // Compat: a replaced field that is missing is added.
    if let json_patch::PatchOperation::Replace(replace) = operation {
        let add =
            json_patch::AddOperation { path: replace.path.clone(), value: replace.value.clone() };
        let one = json_patch::Patch(vec![json_patch::PatchOperation::Add(add)]);
        if json_patch::patch(target, &one).is_ok() {
            return Ok(());
        }
    }
    Err(Failure::rejected_patch())
}
