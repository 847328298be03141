//! Validation of pods and pod templates.

mod affinity;
mod container;
mod network;
mod probe;
mod resources;
mod security;
mod update;
mod volume;

use serde_json::{Value, json};

use super::{items, selector};
use crate::{
    admit::{meta, name},
    failure::Fault,
    object,
};

/// Validates a pod.
pub(super) fn check(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let pod = new.get("spec").unwrap_or(&Value::Null);
    let mut faults: Vec<Fault> = deletion_cost(new, "metadata.annotations").into_iter().collect();
    faults.extend(spec(pod, "spec"));
    if let Some(old) = old {
        faults.extend(update::check(new, old));
    } else {
        faults.extend(ephemeral(pod, "spec", "cannot be set on create"));
        faults.extend(bound_too_early(pod));
    }
    faults
}

/// Validates the template of the pods of a workload.
pub(super) fn template(template: &Value, place: &str) -> Vec<Fault> {
    let annotations = format!("{place}.annotations");
    let labels = object::at(template, &["metadata", "labels"]);
    let mut faults = selector::labels(labels, &format!("{place}.labels"));
    faults.extend(meta::annotations(template, &annotations));
    faults.extend(deletion_cost(template, &annotations));
    let pod = template.get("spec").unwrap_or(&Value::Null);
    let place = format!("{place}.spec");
    faults.extend(spec(pod, &place));
    faults.extend(ephemeral(pod, &place, "ephemeral containers not allowed in pod template"));
    faults
}

/// Validates the annotation with the order in which pods are deleted.
fn deletion_cost(pod: &Value, place: &str) -> Option<Fault> {
    const KEY: &str = "controller.kubernetes.io/pod-deletion-cost";
    let cost = object::at(pod, &["metadata", "annotations", KEY])?;
    let text = cost.as_str().unwrap_or("");
    // Compat: a plus sign and leading zeros are refused.
    let is_plain = text == "0" || !text.starts_with(['+', '0']);
    let is_number = is_plain && text.parse::<i32>().is_ok();
    (!is_number).then(|| Fault::invalid(format!("{place}[{KEY}]"), cost, "must be a 32bit integer"))
}

/// Returns the error for containers that only a subresource adds.
fn ephemeral(pod: &Value, place: &str, rule: &str) -> Option<Fault> {
    let has_some = items(pod, "ephemeralContainers").next().is_some();
    has_some.then(|| Fault::forbidden(format!("{place}.ephemeralContainers"), rule))
}

/// Returns the error for a new pod that has a node and still waits for being scheduled.
fn bound_too_early(pod: &Value) -> Option<Fault> {
    let is_bound = !object::text(pod, &["nodeName"]).is_empty();
    let rule = "cannot be set until all schedulingGates have been cleared";
    (is_bound && items(pod, "schedulingGates").next().is_some())
        .then(|| Fault::forbidden("spec.nodeName", rule))
}

/// Validates the spec of a pod or of a template.
pub(super) fn spec(pod: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let volumes = volume::all(pod, place, &mut faults);
    faults.extend(container::all(pod, place, &volumes));
    faults.extend(network::host_ports(pod, place));
    let policy = object::text(pod, &["restartPolicy"]);
    faults.extend(one_of(place, "restartPolicy", policy, &["Always", "OnFailure", "Never"]));
    let policy = object::text(pod, &["dnsPolicy"]);
    let known = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    faults.extend(one_of(place, "dnsPolicy", policy, &known));
    for (key, value) in pod.get("nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        let place = format!("{place}.nodeSelector");
        for rule in name::qualified_faults(key) {
            faults.push(Fault::invalid(place.clone(), &json!(key), &rule));
        }
        for rule in name::label_value_faults(value.as_str().unwrap_or("")) {
            faults.push(Fault::invalid(place.clone(), value, &rule));
        }
    }
    faults.extend(security::of_pod(pod, place));
    faults.extend(affinity::check(pod, place));
    faults.extend(network::dns(pod, place));
    faults.extend(network::gates(pod, place));
    faults.extend(affinity::spread(pod, place));
    let account = object::text(pod, &["serviceAccountName"]);
    if !account.is_empty() {
        for rule in name::subdomain_faults(account) {
            faults.push(Fault::invalid(
                format!("{place}.serviceAccountName"),
                &json!(account),
                &rule,
            ));
        }
    }
    let node = object::text(pod, &["nodeName"]);
    if !node.is_empty() {
        for rule in name::subdomain_faults(node) {
            faults.push(Fault::invalid(format!("{place}.nodeName"), &json!(node), &rule));
        }
    }
    if let Some(seconds) = pod.get("activeDeadlineSeconds")
        && seconds.as_i64().is_some_and(|seconds| seconds < 1)
    {
        let place = format!("{place}.activeDeadlineSeconds");
        faults.push(Fault::invalid(place, seconds, "must be between 1 and 2147483647, inclusive"));
    }
    faults.extend(network::names(pod, place));
    faults.extend(tolerations(pod, place));
    faults.extend(network::aliases(pod, place));
    faults
}

/// Validates a field with a fixed set of values.
fn one_of(place: &str, field: &str, value: &str, known: &[&str]) -> Option<Fault> {
    let place = format!("{place}.{field}");
    if value.is_empty() {
        return Some(Fault::required(place, ""));
    }
    (!known.contains(&value)).then(|| Fault::not_supported(place, value, known))
}

fn tolerations(pod: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, toleration) in items(pod, "tolerations") {
        let place = format!("{place}.tolerations[{at}]");
        let of = |field| object::text(toleration, &[field]);
        let mut invalid = |field: &str, value: &str, rule: &str| {
            faults.push(Fault::invalid(format!("{place}.{field}"), &json!(value), rule));
        };
        if of("key").is_empty() {
            if of("operator") != "Exists" {
                let rule = "operator must be Exists when `key` is empty, which means \"match all \
                    values and all keys\"";
                invalid("operator", of("operator"), rule);
            }
        } else {
            for rule in name::qualified_faults(of("key")) {
                invalid("key", of("key"), &rule);
            }
        }
        if toleration.get("tolerationSeconds").is_some() && of("effect") != "NoExecute" {
            let rule = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            invalid("effect", of("effect"), rule);
        }
        match of("operator") {
            "Equal" | "" => {
                let rules = name::label_value_faults(of("value"));
                if !rules.is_empty() {
                    invalid("operator", of("value"), &rules.join(";"));
                }
            }
            "Exists" if !of("value").is_empty() => {
                invalid("operator", of("value"), "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            other => {
                let known = ["Equal", "Exists"];
                faults.push(Fault::not_supported(format!("{place}.operator"), other, &known));
            }
        }
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !of("effect").is_empty() && !known.contains(&of("effect")) {
            faults.push(Fault::not_supported(format!("{place}.effect"), of("effect"), &known));
        }
    }
    faults
}
