//! Small readings of untyped objects: the metadata every kind shares.

use serde_json::{Map, Value};

/// The text at `metadata.<field>`, empty when there is none.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or("")
}

/// The object's name.
pub(crate) fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// The object's namespace, empty for cluster-wide objects.
pub(crate) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// Whether deletion has begun.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// The finalizers that still hold the object.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object
        .get("metadata")
        .and_then(|meta| meta.get("finalizers"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// The value of a label.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// The object's `metadata`, made where it is missing or is no map.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(map_of(object), "metadata")
}

/// The map at `key`, made where it is missing or something else.
pub(crate) fn map_mut<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> &'a mut Map<String, Value> {
    map_of(map.entry(key.to_owned()).or_insert(Value::Null))
}

/// The value as a map, replaced by an empty one when it is none.
pub(crate) fn map_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made a map")
}

/// Sets `metadata.<field>`.
pub(crate) fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    meta_mut(object).insert(field.to_owned(), value.into());
}

/// Removes `metadata.<field>`.
pub(crate) fn drop_meta(object: &mut Value, field: &str) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove(field);
    }
}

/// The value at a path of map keys.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// The text at a path of map keys, empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}
