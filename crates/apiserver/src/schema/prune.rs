//! Prunes the fields that a schema does not define.

use serde_json::Value;

use super::{Additional, Kind, Schema};

/// Prunes unknown fields from an object and returns their paths.
pub(crate) fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(schema, object, "", &mut unknown);
    unknown
}

fn walk(schema: &Schema, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let open = schema.preserve
                || matches!(schema.additional, Additional::Anything)
                || (schema.kind == Kind::Any && schema.properties.is_empty());
            map.retain(|key, below| {
                let place = join(path, key);
                if schema.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    return true;
                }
                match schema.entry(key) {
                    Some(schema) => walk(schema, below, &place, unknown),
                    None if open => {}
                    None => {
                        unknown.push(place);
                        return false;
                    }
                }
                true
            });
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (at, item) in list.iter_mut().enumerate() {
                    walk(items, item, &format!("{path}[{at}]"), unknown);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Appends a key to a field path.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
