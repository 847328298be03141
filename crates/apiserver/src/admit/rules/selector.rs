//! Validation of label selectors.

use serde_json::{Value, json};

use super::items;
use crate::{admit::name, failure::Fault, object};

/// Validates a label selector.
pub(super) fn check(selector: &Value, place: &str) -> Vec<Fault> {
    let mut faults = labels(selector.get("matchLabels"), &format!("{place}.matchLabels"));
    for (at, one) in items(selector, "matchExpressions") {
        faults.extend(requirement(one, &format!("{place}.matchExpressions[{at}]")));
    }
    faults
}

/// Validates a map of labels.
pub(super) fn labels(map: Option<&Value>, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (key, value) in map.and_then(Value::as_object).into_iter().flatten() {
        for rule in name::qualified_faults(key) {
            faults.push(Fault::invalid(place, &json!(key), &rule));
        }
        for rule in name::label_value_faults(value.as_str().unwrap_or("")) {
            faults.push(Fault::invalid(place, value, &rule));
        }
    }
    faults
}

fn requirement(one: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let values = one.get("values").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match object::text(one, &["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let rule = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(Fault::required(format!("{place}.values"), rule));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let rule = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(Fault::forbidden(format!("{place}.values"), rule));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            let rule = "not a valid selector operator";
            faults.push(Fault::invalid(format!("{place}.operator"), &json!(other), rule));
        }
    }
    let key = object::text(one, &["key"]);
    for rule in name::qualified_faults(key) {
        faults.push(Fault::invalid(format!("{place}.key"), &json!(key), &rule));
    }
    for (at, value) in values.iter().enumerate() {
        for rule in name::label_value_faults(value.as_str().unwrap_or("")) {
            faults.push(Fault::invalid(format!("{place}.values[{at}]"), value, &rule));
        }
    }
    faults
}
