//! Field sets, as `managedFields` stores them.

use std::{collections::BTreeSet, fmt::Write as _};

use serde_json::{Map, Value};

use super::strategic;
use crate::{
    object,
    resource::Resource,
    schema::{ListType, Schema, validate},
};

/// One step of a path into an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// An entry of a map.
    Field(String),
    /// A list item, by its key fields as JSON.
    Item(String),
    /// A member of a set, as JSON.
    Member(String),
}

/// A path into an object.
pub(crate) type Path = Vec<Step>;

/// The fields that a manager owns.
pub(crate) type Set = BTreeSet<Path>;

/// The merge rules at one place of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Rules of the built-in kinds, which depend on the field name.
    Builtin,
    /// Rules of a CRD's schema; `None` below a part that the schema does not define.
    Custom(Option<&'a Schema>),
}

impl<'a> Place<'a> {
    /// Returns the rules at the root of a resource's objects.
    pub(crate) fn root(resource: &'a Resource) -> Self {
        if resource.custom { Self::Custom(resource.schema.as_deref()) } else { Self::Builtin }
    }

    /// Returns the rules below `field`. All kinds share the rules of `metadata`.
    pub(crate) fn below(self, field: &str, at_root: bool) -> Self {
        match self {
            Self::Custom(_) if at_root && field == "metadata" => Self::Builtin,
            Self::Custom(schema) => Self::Custom(schema.and_then(|schema| schema.entry(field))),
            Self::Builtin => Self::Builtin,
        }
    }

    /// Returns the rules for the items of a list.
    pub(crate) fn items(self) -> Self {
        match self {
            Self::Custom(schema) => Self::Custom(schema.and_then(|schema| schema.items.as_deref())),
            Self::Builtin => Self::Builtin,
        }
    }

    /// Returns the list type of the list called `field`.
    pub(crate) fn list(self, field: &str) -> ListType {
        match self {
            Self::Custom(schema) => schema.map_or(ListType::Atomic, |schema| schema.list.clone()),
            Self::Builtin if strategic::is_set(field) => ListType::Set,
            Self::Builtin if field == "ports" => {
                ListType::Map(vec!["containerPort".into(), "protocol".into()])
            }
            Self::Builtin => match strategic::merge_key(field) {
                Some(key) => ListType::Map(vec![key.to_owned()]),
                None => ListType::Atomic,
            },
        }
    }

    /// Returns true if a map here is owned and replaced as a whole.
    pub(crate) fn is_atomic_map(self) -> bool {
        matches!(self, Self::Custom(Some(schema)) if schema.atomic_map)
    }
}

/// Returns the path step of a list item, or `None` if the list is atomic.
pub(crate) fn step(list: &ListType, item: &Value) -> Option<Step> {
    match list {
        ListType::Atomic => None,
        ListType::Set => Some(Step::Member(item.to_string())),
        ListType::Map(keys) => Some(Step::Item(validate::identity(item, keys).to_string())),
    }
}

/// Collects all fields of a value that can be owned.
pub(crate) fn leaves(resource: &Resource, value: &Value) -> Set {
    let mut out = Set::new();
    let root = Place::root(resource);
    for (key, below) in value.as_object().into_iter().flatten() {
        if matches!(key.as_str(), "apiVersion" | "kind") {
            continue;
        }
        collect(root.below(key, true), key, below, &mut vec![Step::Field(key.clone())], &mut out);
    }
    out.retain(|path| !is_system(path));
    out
}

/// Returns true for fields that identify an object or that only the server writes.
fn is_system(path: &Path) -> bool {
    const SERVER_FIELDS: [&str; 10] = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "generateName",
    ];
    match path.as_slice() {
        [Step::Field(top)] => top == "metadata",
        [Step::Field(top), Step::Field(field), ..] => {
            top == "metadata" && SERVER_FIELDS.contains(&field.as_str())
        }
        _ => false,
    }
}

fn collect(place: Place<'_>, field: &str, value: &Value, path: &mut Path, out: &mut Set) {
    match value {
        Value::Object(map) if !map.is_empty() && !place.is_atomic_map() => {
            for (key, below) in map {
                path.push(Step::Field(key.clone()));
                collect(place.below(key, false), key, below, path, out);
                path.pop();
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let kind = place.list(field);
            if kind == ListType::Atomic {
                out.insert(path.clone());
                return;
            }
            for item in list {
                let Some(step) = step(&kind, item) else { continue };
                path.push(step);
                out.insert(path.clone());
                if item.is_object() {
                    collect(place.items(), "", item, path, out);
                }
                path.pop();
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            out.insert(path.clone());
        }
    }
}

/// Returns the value at a path.
pub(crate) fn get<'a>(value: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, step| match step {
        Step::Field(key) => value.get(key),
        Step::Item(_) | Step::Member(_) => value.as_array()?.iter().find(|item| is_at(step, item)),
    })
}

fn is_at(step: &Step, item: &Value) -> bool {
    match step {
        Step::Field(_) => false,
        Step::Member(text) => serde_json::from_str(text).is_ok_and(|wanted: Value| wanted == *item),
        Step::Item(text) => {
            let wanted: Value = serde_json::from_str(text).unwrap_or_default();
            let wanted = wanted.as_object().cloned().unwrap_or_default();
            !wanted.is_empty() && wanted.iter().all(|(key, value)| item.get(key) == Some(value))
        }
    }
}

/// Removes the value at a path, and the maps and lists that become empty.
pub(crate) fn remove(value: &mut Value, path: &[Step]) {
    let Some((first, rest)) = path.split_first() else { return };
    match (first, value) {
        (Step::Field(key), Value::Object(map)) => {
            if rest.is_empty() {
                map.remove(key);
            } else if let Some(below) = map.get_mut(key) {
                remove(below, rest);
                if is_empty(below) {
                    map.remove(key);
                }
            }
        }
        (Step::Item(_) | Step::Member(_), Value::Array(list)) => {
            if rest.is_empty() {
                list.retain(|item| !is_at(first, item));
            } else if let Some(item) = list.iter_mut().find(|item| is_at(first, item)) {
                remove(item, rest);
            }
        }
        (Step::Field(_) | Step::Item(_) | Step::Member(_), _) => {}
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Formats a path as conflict messages do: `.spec.list[name="a"].field`.
pub(crate) fn shown(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Field(key) => {
                out.push('.');
                out.push_str(key);
            }
            Step::Member(text) => {
                let _ = write!(out, "[={text}]");
            }
            Step::Item(text) => {
                let keys: Value = serde_json::from_str(text).unwrap_or_default();
                let keys = keys.as_object().cloned().unwrap_or_default();
                let keys: Vec<String> =
                    keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let _ = write!(out, "[{}]", keys.join(","));
            }
        }
    }
    out
}

/// Encodes a set in the `FieldsV1` format.
pub(crate) fn encode(set: &Set) -> Value {
    let mut root = Value::Object(Map::new());
    for path in set {
        let mut at = &mut root;
        for step in path {
            let key = match step {
                Step::Field(key) => format!("f:{key}"),
                Step::Item(text) => format!("k:{text}"),
                Step::Member(text) => format!("v:{text}"),
            };
            at = object::map_of(at).entry(key).or_insert_with(|| Value::Object(Map::new()));
        }
        if matches!(path.last(), Some(Step::Item(_))) {
            object::map_of(at).insert(".".to_owned(), Value::Object(Map::new()));
        }
    }
    root
}

/// Decodes the `FieldsV1` format.
pub(crate) fn decode(fields: &Value) -> Set {
    let mut out = Set::new();
    decode_into(fields, &mut Vec::new(), &mut out);
    out
}

fn decode_into(fields: &Value, path: &mut Path, out: &mut Set) {
    let Some(map) = fields.as_object() else { return };
    if map.is_empty() && !path.is_empty() {
        out.insert(path.clone());
    }
    for (key, below) in map {
        let step = match key.split_once(':') {
            Some(("f", name)) => Step::Field(name.to_owned()),
            Some(("k", text)) => Step::Item(text.to_owned()),
            Some(("v", text)) => Step::Member(text.to_owned()),
            _ => {
                if key == "." {
                    out.insert(path.clone());
                }
                continue;
            }
        };
        path.push(step);
        decode_into(below, path, out);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;
    use serde_json::json;

    #[test]
    fn a_set_survives_encoding_and_decoding() {
        let pods = builtin::by_plural("pods");
        let pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "c", "image": "i", "args": ["1", "2"]}]}});
        let set = leaves(&pods, &pod);
        let written = encode(&set);
        assert_eq!(decode(&written), set);
        assert_eq!(
            written,
            json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}":
                    {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}}}})
        );
    }

    #[test]
    fn paths_find_and_remove_items() {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut path = vec![
            Step::Field("spec".into()),
            Step::Field("containers".into()),
            Step::Item("{\"name\":\"c\"}".into()),
            Step::Field("image".into()),
        ];
        assert_eq!(get(&pod, &path), Some(&json!("i")));
        assert_eq!(shown(&path), ".spec.containers[name=\"c\"].image");
        path.pop();
        remove(&mut pod, &path);
        assert_eq!(pod, json!({}));
    }
}
