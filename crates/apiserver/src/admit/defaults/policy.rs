//! Defaults of `ValidatingAdmissionPolicy` objects and their bindings.

use serde_json::{Map, Value, json};

use super::put;
use crate::object;

/// Fills in the defaults of a policy's spec.
pub(super) fn fill(spec: &mut Map<String, Value>) {
    put(spec, "failurePolicy", json!("Fail"));
    fill_match(spec, "matchConstraints");
}

/// Fills in the defaults of a binding's spec.
pub(super) fn fill_binding(spec: &mut Map<String, Value>) {
    fill_match(spec, "matchResources");
}

fn fill_match(spec: &mut Map<String, Value>, field: &str) {
    let Some(Value::Object(found)) = spec.get_mut(field) else { return };
    put(found, "matchPolicy", json!("Equivalent"));
    put(found, "namespaceSelector", json!({}));
    put(found, "objectSelector", json!({}));
    for list in ["resourceRules", "excludeResourceRules"] {
        let rules = found.get_mut(list).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            put(object::map_of(rule), "scope", json!("*"));
        }
    }
}
