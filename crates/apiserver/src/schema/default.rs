//! Fills in the defaults of a schema.

use serde_json::Value;

use super::{Additional, Schema};

/// Fills in defaults from the root to the leaves, because a default may itself have defaults.
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
                if let Some(found) = map.get_mut(key) {
                    fill(below, found);
                }
            }
            if let Additional::Each(each) = &schema.additional {
                for (key, found) in map.iter_mut() {
                    if !schema.properties.contains_key(key) {
                        fill(each, found);
                    }
                }
            }
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
