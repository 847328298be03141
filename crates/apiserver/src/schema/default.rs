//! Fills in the defaults of a schema.

use serde_json::Value;

use super::{Additional, Schema};

/// Fills in defaults from the root to the leaves, because a default may itself have defaults. A null
/// without a default is removed where the schema does not allow it.
pub(crate) fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, below) in &schema.properties {
                if let Some(default) = &below.default {
                    let missing = map
                        .get(key)
                        // An explicit null counts as missing if the field is not nullable.
                        .is_none_or(|found| found.is_null() && !below.nullable);
                    if missing {
                        map.insert(key.clone(), default.clone());
                    }
                }
            }
            map.retain(|key, found| {
                let each = match &schema.additional {
                    Additional::Each(each) => Some(&**each),
                    Additional::Nothing | Additional::Anything => None,
                };
                let Some(below) = schema.properties.get(key).or(each) else { return true };
                fill(below, found);
                !found.is_null() || below.nullable
            });
        }
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    fill(items, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
