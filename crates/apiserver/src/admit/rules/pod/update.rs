//! Validation of a change of a pod: most of its spec cannot change.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::items;
use crate::{failure::Fault, object};

const RULE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

/// Validates the change of a pod's spec.
pub(super) fn check(new: &Value, old: &Value) -> Vec<Fault> {
    let (now, before) = (part(new), part(old));
    if now == before {
        return Vec::new();
    }
    for list in ["containers", "initContainers"] {
        if count(&now, list) != count(&before, list) {
            let rule = "pod updates may not add or remove containers";
            return vec![Fault::forbidden(format!("spec.{list}"), rule)];
        }
    }
    if let Some(fault) = deadline(&now, &before) {
        return vec![fault];
    }
    if let Some(fault) = tolerations(&now, &before) {
        return vec![fault];
    }
    let faults = gates(&now, &before);
    if !faults.is_empty() {
        return faults;
    }
    if comparable(&now, &before) != before {
        return vec![Fault::forbidden("spec", RULE)];
    }
    Vec::new()
}

fn part(pod: &Value) -> Value {
    pod.get("spec").cloned().unwrap_or_else(|| json!({}))
}

fn count(spec: &Value, list: &str) -> usize {
    spec.get(list).and_then(Value::as_array).map_or(0, Vec::len)
}

fn deadline(now: &Value, before: &Value) -> Option<Fault> {
    let of = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    let place = "spec.activeDeadlineSeconds";
    match (of(now), of(before)) {
        (Some(now), Some(before)) if now > before => {
            let rule = "must be less than or equal to previous value";
            Some(Fault::invalid(place, &json!(now), rule))
        }
        (None, Some(_)) => {
            let rule = "must not update from a positive integer to nil value";
            Some(Fault::invalid(place, &Value::Null, rule))
        }
        _ => None,
    }
}

/// Tolerations may be added, and their seconds may change.
fn tolerations(now: &Value, before: &Value) -> Option<Fault> {
    let without_seconds = |value: &Value| {
        let mut value = value.clone();
        object::map_of(&mut value).remove("tolerationSeconds");
        value
    };
    let of = |spec: &Value| -> Vec<Value> {
        let list = spec.get("tolerations").and_then(Value::as_array).into_iter().flatten();
        list.map(without_seconds).collect()
    };
    let now: HashSet<Value> = of(now).into_iter().collect();
    of(before).iter().any(|one| !now.contains(one)).then(|| {
        let rule = "existing toleration can not be modified except its tolerationSeconds";
        Fault::forbidden("spec.tolerations", rule)
    })
}

/// Gates may be removed.
fn gates(now: &Value, before: &Value) -> Vec<Fault> {
    const LIST: &str = "schedulingGates";
    let name = |gate: &Value| object::text(gate, &["name"]).to_owned();
    let old: HashSet<String> = items(before, LIST).map(|(_, gate)| name(gate)).collect();
    let new = items(now, LIST).map(|(at, gate)| (at, name(gate)));
    new.filter(|(_, name)| !old.contains(name))
        .map(|(at, name)| {
            let rule = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            Fault::forbidden(format!("spec.{LIST}[{at}].name"), &rule)
        })
        .collect()
}

/// Returns the new spec with the old values of the fields that may change.
fn comparable(now: &Value, before: &Value) -> Value {
    let mut out = now.clone();
    let map = object::map_of(&mut out);
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        match before.get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }
    for list in ["containers", "initContainers"] {
        let old = before.get(list).and_then(Value::as_array);
        let new = map.get_mut(list).and_then(Value::as_array_mut);
        for (new, old) in new.into_iter().flatten().zip(old.into_iter().flatten()) {
            if let Some(image) = old.get("image") {
                object::map_of(new).insert("image".to_owned(), image.clone());
            }
        }
    }
    out
}
