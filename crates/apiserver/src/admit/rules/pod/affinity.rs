//! Validation of the nodes that a pod may run on: affinities, and the spread over a topology.

use serde_json::{Value, json};

use super::{super::selector, items};
use crate::{admit::name, failure::Fault, object};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Validates the affinities of a pod.
pub(super) fn check(pod: &Value, place: &str) -> Vec<Fault> {
    let place = format!("{place}.affinity");
    let of = |kind: &str| object::at(pod, &["affinity", kind]);
    let mut faults: Vec<Fault> = Vec::new();
    if let Some(found) = of("nodeAffinity") {
        faults.extend(of_nodes(found, &format!("{place}.nodeAffinity")));
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        if let Some(found) = of(kind) {
            faults.extend(of_pods(found, &format!("{place}.{kind}")));
        }
    }
    faults
}

fn of_nodes(affinity: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let Some(required) = affinity.get(REQUIRED) {
        let place = format!("{place}.{REQUIRED}.nodeSelectorTerms");
        if items(required, "nodeSelectorTerms").next().is_none() {
            faults
                .push(Fault::required(place.clone(), "must have at least one node selector term"));
        }
        for (at, one) in items(required, "nodeSelectorTerms") {
            faults.extend(term(one, &format!("{place}[{at}]"), true));
        }
    }
    for (at, one) in items(affinity, PREFERRED) {
        let place = format!("{place}.{PREFERRED}[{at}]");
        faults.extend(weight(one, &place));
        let preference = one.get("preference").unwrap_or(&Value::Null);
        faults.extend(term(preference, &format!("{place}.preference"), false));
    }
    faults
}

fn weight(one: &Value, place: &str) -> Option<Fault> {
    let weight = one.get("weight").and_then(Value::as_i64).unwrap_or(0);
    let is_weight = (1..=100).contains(&weight);
    let rule = "must be in the range 1-100";
    (!is_weight).then(|| Fault::invalid(format!("{place}.weight"), &json!(weight), rule))
}

/// Validates a term. Values of preferred terms are not checked.
fn term(term: &Value, place: &str, has_checked_values: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, one) in items(term, "matchExpressions") {
        let place = format!("{place}.matchExpressions[{at}]");
        faults.extend(requirement(one, &place, has_checked_values));
    }
    for (at, one) in items(term, "matchFields") {
        faults.extend(field_requirement(one, &format!("{place}.matchFields[{at}]")));
    }
    faults
}

fn requirement(one: &Value, place: &str, has_checked_values: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let count = items(one, "values").count();
    let values = format!("{place}.values");
    match object::text(one, &["operator"]) {
        "In" | "NotIn" if count == 0 => {
            let rule = "must be specified when `operator` is 'In' or 'NotIn'";
            faults.push(Fault::required(values.clone(), rule));
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            let rule = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            faults.push(Fault::forbidden(values.clone(), rule));
        }
        "Gt" | "Lt" if count != 1 => {
            let rule = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            faults.push(Fault::required(values.clone(), rule));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        other => faults.push(unknown_operator(other, place)),
    }
    faults.extend(label_key(object::text(one, &["key"]), &format!("{place}.key")));
    for (at, value) in items(one, "values").filter(|_| has_checked_values) {
        for rule in name::label_value_faults(value.as_str().unwrap_or("")) {
            faults.push(Fault::invalid(format!("{values}[{at}]"), value, &rule));
        }
    }
    faults
}

fn unknown_operator(operator: &str, place: &str) -> Fault {
    let rule = "not a valid selector operator";
    Fault::invalid(format!("{place}.operator"), &json!(operator), rule)
}

fn label_key(key: &str, place: &str) -> Vec<Fault> {
    let rules = name::qualified_faults(key).into_iter();
    rules.map(|rule| Fault::invalid(place, &json!(key), &rule)).collect()
}

fn field_requirement(one: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    match object::text(one, &["operator"]) {
        "In" | "NotIn" => {
            if items(one, "values").count() != 1 {
                let rule = "must be only one value when `operator` is 'In' or 'NotIn' for node \
                    field selector";
                faults.push(Fault::required(format!("{place}.values"), rule));
            }
        }
        other => faults.push(unknown_operator(other, place)),
    }
    let key = object::text(one, &["key"]);
    if key != "metadata.name" {
        let rule = "not a valid field selector key";
        faults.push(Fault::invalid(format!("{place}.key"), &json!(key), rule));
        return faults;
    }
    for (at, value) in items(one, "values") {
        for rule in name::subdomain_faults(value.as_str().unwrap_or("")) {
            faults.push(Fault::invalid(format!("{place}.values[{at}]"), value, &rule));
        }
    }
    faults
}

fn of_pods(affinity: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, one) in items(affinity, REQUIRED) {
        faults.extend(pod_term(one, &format!("{place}.{REQUIRED}[{at}]")));
    }
    for (at, one) in items(affinity, PREFERRED) {
        let place = format!("{place}.{PREFERRED}[{at}]");
        faults.extend(weight(one, &place));
        let term = one.get("podAffinityTerm").unwrap_or(&Value::Null);
        faults.extend(pod_term(term, &format!("{place}.podAffinityTerm")));
    }
    faults
}

fn pod_term(term: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for field in ["labelSelector", "namespaceSelector"] {
        if let Some(found) = term.get(field) {
            faults.extend(selector::check(found, &format!("{place}.{field}")));
        }
    }
    for (_, namespace) in items(term, "namespaces") {
        for rule in name::label_faults(namespace.as_str().unwrap_or("")) {
            faults.push(Fault::invalid(format!("{place}.namespace"), namespace, &rule));
        }
    }
    let (key, place) = (object::text(term, &["topologyKey"]), format!("{place}.topologyKey"));
    if key.is_empty() {
        faults.push(Fault::required(place.clone(), "can not be empty"));
    }
    faults.extend(label_key(key, &place));
    faults
}

/// Validates the constraints on the spread of pods over a topology.
pub(super) fn spread(pod: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let all: Vec<&Value> = items(pod, "topologySpreadConstraints").map(|(_, one)| one).collect();
    for (at, one) in all.iter().enumerate() {
        let place = format!("{place}.topologySpreadConstraints[{at}]");
        let of = |field| object::text(one, &[field]);
        let skew = one.get("maxSkew").and_then(Value::as_i64).unwrap_or(0);
        if skew <= 0 {
            let rule = "must be greater than zero";
            faults.push(Fault::invalid(format!("{place}.maxSkew"), &json!(skew), rule));
        }
        let (key, action) = (of("topologyKey"), of("whenUnsatisfiable"));
        if key.is_empty() {
            faults.push(Fault::required(format!("{place}.topologyKey"), "can not be empty"));
        }
        let known = ["DoNotSchedule", "ScheduleAnyway"];
        if !known.contains(&action) {
            let place = format!("{place}.whenUnsatisfiable");
            faults.push(Fault::not_supported(place, action, &known));
        }
        let is_same = |other: &&Value| {
            ["topologyKey", "whenUnsatisfiable"]
                .iter()
                .all(|field| object::text(other, &[field]) == of(field))
        };
        if all.iter().skip(at + 1).any(is_same) {
            let place = format!("{place}.{{topologyKey, whenUnsatisfiable}}");
            faults.push(Fault::duplicate(place, &format!("{{{key}, {action}}}")));
        }
        if let Some(found) = one.get("labelSelector") {
            faults.extend(selector::check(found, &format!("{place}.labelSelector")));
        }
    }
    faults
}
