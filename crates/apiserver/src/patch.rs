//! The four patch formats: JSON patch, merge patch, strategic merge patch and server-side apply.

mod fields;
pub(crate) mod managed;
mod place;
pub(crate) mod ssa;
mod strategic;
mod walk;

use json_patch::PatchOperation;
use serde_json::Value;

use self::place::Place;
use crate::{
    body::{self, Decoded},
    failure::{Failure, type_name},
    field_path::{FieldPath, FieldPaths},
    object,
    resource::Resource,
    store::MAX_DEPTH,
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

/// A decoded patch, and the objections of strict decoding.
type Noted = (Patch, Vec<String>);

/// Decodes a patch of the given media type.
pub(crate) fn read(media: &str, body: &[u8], resource: &Resource) -> Result<Noted, Failure> {
    let prefix = if media == "application/strategic-merge-patch+json" { "" } else { PREFIX };
    let bad = |why: &str| Failure::bad_request(format!("{prefix}{why}"));
    let any = || -> Result<Decoded, Failure> {
        body::any_json(body).map_err(|error| bad(&body::explained(body, &error)))
    };
    let map = |patch: fn(Value) -> Patch| -> Result<Noted, Failure> {
        let Decoded { value, notes } = any()?;
        if value.is_object() {
            return Ok((patch(value), notes));
        }
        let found = type_name(&value);
        let why = "into Go value of type map[string]interface {}";
        Err(bad(&format!("json: cannot unmarshal {found} {why}")))
    };
    match media {
        "application/json-patch+json" => operations(any()?),
        "application/merge-patch+json" => map(Patch::Merge),
        "application/strategic-merge-patch+json" if !resource.custom => map(Patch::Strategic),
        "application/apply-patch+yaml" => {
            body::applied(body, &resource.kind).map(|read| (Patch::Apply(read.value), read.notes))
        }
        "application/strategic-merge-patch+json" => Err(Failure::media_type(CUSTOM_TYPES)),
        _ => Err(Failure::patch_type()),
    }
}

/// Maximum number of operations of a JSON patch, the same as kube-apiserver's.
const MAX_OPERATIONS: usize = 10_000;

/// Maximum size of what the operations of a JSON patch copy, the same as kube-apiserver's.
const MAX_COPIED: usize = 3 << 20;

/// Decodes a JSON patch.
fn operations(read: Decoded) -> Result<Noted, Failure> {
    let Decoded { value: list, mut notes } = read;
    if !list.is_array() {
        let found = type_name(&list);
        let why = "into Go value of type []handlers.jsonPatchOp";
        return Err(Failure::bad_request(format!("{PREFIX}json: cannot unmarshal {found} {why}")));
    }
    let count = list.as_array().map_or(0, Vec::len);
    if count > MAX_OPERATIONS {
        return Err(Failure::too_many_operations(count, MAX_OPERATIONS));
    }
    notes.extend(unknown_fields(&list));
    let notes = notes.into_iter().map(|note| format!("json patch {note}")).collect();
    let patch = serde_json::from_value(list).map_err(|_| Failure::rejected_patch())?;
    Ok((Patch::Json(patch), notes))
}

/// Returns the notes about fields that no operation of a JSON patch has.
fn unknown_fields(list: &Value) -> Vec<String> {
    let mut unknown = FieldPaths::default();
    let root = FieldPath::Root;
    for (at, operation) in list.as_array().into_iter().flatten().enumerate() {
        let fields = operation.as_object().into_iter().flatten().map(|(key, _)| key);
        for field in fields.filter(|key| !matches!(key.as_str(), "op" | "path" | "from" | "value"))
        {
            unknown.add(root.index(at).key(field));
        }
    }
    unknown.into_vec().into_iter().map(|path| format!("unknown field {path:?}")).collect()
}

/// Returns the object after a patch other than server-side apply.
pub(crate) fn apply(patch: &Patch, current: &Value, resource: &Resource) -> Result<Value, Failure> {
    let mut new = current.clone();
    match patch {
        Patch::Json(patch) => {
            let mut copied = 0;
            for operation in &patch.0 {
                check_operation(&new, operation, &mut copied)?;
                apply_operation(&mut new, operation)?;
            }
        }
        Patch::Merge(patch) => json_patch::merge(&mut new, patch),
        Patch::Strategic(patch) => {
            strategic::merge(Place::root(resource), &mut new, patch)?;
            // An object that is replaced as a whole keeps its kind.
            let map = object::map_of(&mut new);
            map.entry("apiVersion").or_insert_with(|| resource.api_version().into());
            map.entry("kind").or_insert_with(|| resource.kind.clone().into());
        }
        Patch::Apply(_) => {}
    }
    if new.is_object() {
        return Ok(new);
    }
    Err(Failure::rejected_patch())
}

/// Fails if an operation would copy too much, or nest its target more deeply than an object may be.
fn check_operation(
    target: &Value,
    operation: &PatchOperation,
    copied: &mut usize,
) -> Result<(), Failure> {
    let (path, value) = match operation {
        PatchOperation::Add(add) => (&add.path, Some(&add.value)),
        PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
        PatchOperation::Move(moved) => (&moved.path, target.pointer(moved.from.as_str())),
        PatchOperation::Copy(copy) => {
            let value = target.pointer(copy.from.as_str());
            *copied = copied.saturating_add(value.map_or(0, size));
            (&copy.path, value)
        }
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
    };
    let room = MAX_DEPTH.checked_sub(path.tokens().count());
    let fits = room.is_some_and(|room| value.is_none_or(|value| is_within(value, room)));
    if fits && *copied <= MAX_COPIED { Ok(()) } else { Err(Failure::rejected_patch()) }
}

/// Returns true if a value has at most this depth. A text or a number has none.
fn is_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Object(map) => depth > 0 && map.values().all(|below| is_within(below, depth - 1)),
        Value::Array(list) => depth > 0 && list.iter().all(|below| is_within(below, depth - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Returns the size of the JSON text of a value, which the depth of an object limits.
fn size(value: &Value) -> usize {
    value.to_string().len()
}

/// Applies one operation of a JSON patch.
fn apply_operation(target: &mut Value, operation: &PatchOperation) -> Result<(), Failure> {
    let one = json_patch::Patch(vec![operation.clone()]);
    if json_patch::patch(target, &one).is_ok() {
        return Ok(());
    }
    // Compat: a replaced field that is missing is added.
    if let PatchOperation::Replace(replace) = operation {
        let add =
            json_patch::AddOperation { path: replace.path.clone(), value: replace.value.clone() };
        let one = json_patch::Patch(vec![PatchOperation::Add(add)]);
        if json_patch::patch(target, &one).is_ok() {
            return Ok(());
        }
    }
    Err(Failure::rejected_patch())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;
    use serde_json::json;

    fn patched(object: &Value, operations: &Value) -> Result<Value, u16> {
        let resource = builtin::by_plural("configmaps");
        let body = operations.to_string();
        let read = read("application/json-patch+json", body.as_bytes(), &resource);
        read.and_then(|(patch, _)| apply(&patch, object, &resource)).map_err(|it| it.code.as_u16())
    }

    #[test]
    fn a_json_patch_copies_a_limited_amount() {
        let object = json!({"data": {"a": "x".repeat(1 << 20)}});
        let copy = |number: usize| json!({"op": "copy", "from": "/data/a", "path": format!("/data/{number}")});
        let copies = |count: usize| -> Value { (0..count).map(copy).collect() };
        assert!(patched(&object, &copies(2)).is_ok());
        assert_eq!(patched(&object, &copies(3)), Err(422));
        let double = |number: usize| json!({"op": "copy", "from": "/data", "path": format!("/data/{number}")});
        let doubled: Value = (0..60).map(double).collect();
        assert_eq!(patched(&json!({"data": {"a": "x"}}), &doubled), Err(422));
    }

    #[test]
    fn a_json_patch_has_a_limited_number_of_operations() {
        let test = json!({"op": "test", "path": "/a", "value": 1});
        let tests = |count: usize| Value::from(vec![test.clone(); count]);
        assert!(patched(&json!({"a": 1}), &tests(MAX_OPERATIONS)).is_ok());
        assert_eq!(patched(&json!({"a": 1}), &tests(MAX_OPERATIONS + 1)), Err(413));
    }

    #[test]
    fn a_json_patch_nests_no_more_deeply_than_an_object_may_be() {
        let object = (0..100).fold(json!({}), |below, _| json!({"a": below}));
        let deepest = "/a".repeat(100);
        for operation in ["copy", "move"] {
            let from = if operation == "copy" { "" } else { "/b" };
            let object = json!({"a": object["a"], "b": object["a"]});
            let nested = json!([{"op": operation, "from": from, "path": format!("{deepest}/a")}]);
            assert_eq!(patched(&object, &nested), Err(422), "{operation}");
        }
        let added = json!([{"op": "add", "path": format!("{deepest}/b"), "value": object}]);
        assert_eq!(patched(&object, &added), Err(422));
        let fine = json!([{"op": "add", "path": format!("{deepest}/b"), "value": 1}]);
        assert!(patched(&object, &fine).is_ok());
    }
}
