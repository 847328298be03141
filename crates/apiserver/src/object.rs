//! Accessors for untyped objects, mostly for the metadata that all kinds share.

use serde_json::{Map, Value};

/// Returns the text of `metadata.<field>`, empty if there is none.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|meta| meta.get(field)).and_then(Value::as_str).unwrap_or("")
}

/// Returns the object's name.
pub(crate) fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// Returns the object's namespace, empty for cluster-scoped objects.
pub(crate) fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// Returns true if the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !meta(object, "deletionTimestamp").is_empty()
}

/// Returns the object's finalizers.
pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object
        .get("metadata")
        .and_then(|meta| meta.get("finalizers"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Returns the value of a label.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// Returns the object's `metadata`, created if it is missing or not a map.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(map_of(object), "metadata")
}

/// Returns the map at `key`, created if it is missing or not a map.
pub(crate) fn map_mut<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> &'a mut Map<String, Value> {
    map_of(map.entry(key.to_owned()).or_insert(Value::Null))
}

/// Returns the value as a map. A value that is not a map is replaced by an empty one.
pub(crate) fn map_of(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("the value was made a map above")
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

/// Returns the value at a path of map keys.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// Returns the text at a path of map keys, empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}
