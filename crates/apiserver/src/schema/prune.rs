//! Prunes the fields that a schema does not define.

use serde_json::Value;

use super::{Additional, Kind, Schema};
use crate::field_path::{FieldPath, FieldPaths};

/// Prunes unknown fields from an object and returns their paths.
pub(crate) fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut unknown = FieldPaths::default();
    walk(schema, object, FieldPath::Root, &mut unknown);
    unknown.into_vec()
}

fn walk(schema: &Schema, value: &mut Value, path: FieldPath<'_>, unknown: &mut FieldPaths) {
    match value {
        Value::Object(map) => {
            let open = schema.preserve
                || matches!(schema.additional, Additional::Anything)
                || (schema.kind == Kind::Any && schema.properties.is_empty());
            map.retain(|key, below| {
                if schema.embedded && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                    return true;
                }
                match schema.entry(key) {
                    Some(schema) => walk(schema, below, path.key(key), unknown),
                    None if open => {}
                    None => {
                        unknown.add(path.key(key));
                        return false;
                    }
                }
                true
            });
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for (at, item) in list.iter_mut().enumerate() {
                    walk(items, item, path.index(at), unknown);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
