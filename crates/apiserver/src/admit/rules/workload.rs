//! Validation of Deployments, ReplicaSets, DaemonSets, PodDisruptionBudgets and Leases.

use serde_json::{Value, json};

use super::{not_negative, pod, selector, strategy, unchanged};
use crate::{failure::Fault, object, select::Selector};

/// Validates a Deployment.
pub(super) fn deployment(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(not_negative(new, &["spec", "replicas"]));
    faults.extend(selected_template(new));
    faults.extend(strategy::deployment(new));
    faults.extend(strategy::deadlines(new));
    faults.extend(old.and_then(|old| unchanged(&["spec", "selector"], new, old)));
    faults
}

/// Validates a ReplicaSet.
pub(super) fn replica_set(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(not_negative(new, &["spec", "replicas"]));
    faults.extend(not_negative(new, &["spec", "minReadySeconds"]));
    faults.extend(selected_template(new));
    faults.extend(old.and_then(|old| unchanged(&["spec", "selector"], new, old)));
    if old.is_some_and(|old| old.get("status") != new.get("status")) {
        faults.extend(replica_set_status(new));
    }
    faults
}

fn replica_set_status(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let count =
        |field: &str| object::at(new, &["status", field]).and_then(Value::as_i64).unwrap_or(0);
    let fields = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    for field in fields {
        faults.extend(not_negative(new, &["status", field]));
    }
    let mut refuse = |field: &str, rule: &str| {
        let value = json!(count(field));
        faults.push(Fault::invalid(format!("status.{field}"), &value, rule));
    };
    for field in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if count(field) > count("replicas") {
            refuse(field, "cannot be greater than status.replicas");
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        refuse("availableReplicas", "cannot be greater than readyReplicas");
    }
    faults
}

/// Validates a DaemonSet.
pub(super) fn daemon_set(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(old.and_then(|old| unchanged(&["spec", "selector"], new, old)));
    // Compat: a missing selector shows only as labels that do not match.
    let found = object::at(new, &["spec", "selector"]).filter(|it| !it.is_null());
    let wrong = found.map(|found| selector::check(found, "spec.selector")).unwrap_or_default();
    let is_valid = wrong.is_empty();
    faults.extend(wrong);
    faults.extend(is_valid.then(|| mismatch(new)).flatten());
    faults.extend(found.and_then(|found| empty(new, found)));
    faults.extend(template(new, "DaemonSet"));
    faults.extend(not_negative(new, &["spec", "minReadySeconds"]));
    faults.extend(strategy::daemon_set(new));
    faults.extend(not_negative(new, &["spec", "revisionHistoryLimit"]));
    faults
}

fn is_empty(selector: &Value) -> bool {
    selector.as_object().is_none_or(|map| {
        map.values().all(|part| part.as_object().is_some_and(serde_json::Map::is_empty))
    })
}

/// Returns the error for a selector that selects everything.
fn empty(new: &Value, selector: &Value) -> Option<Fault> {
    let is_set = new.get("kind") == Some(&json!("DaemonSet"));
    let kind = if is_set { "daemonset" } else { "deployment" };
    let rule = format!("empty selector is invalid for {kind}");
    is_empty(selector).then(|| Fault::invalid("spec.selector", selector, &rule))
}

/// Validates the selector and the template of a Deployment or a ReplicaSet.
fn selected_template(new: &Value) -> Vec<Fault> {
    const PLACE: &str = "spec.selector";
    let Some(found) = object::at(new, &["spec", "selector"]).filter(|it| !it.is_null()) else {
        let mut faults = vec![Fault::required(PLACE, "")];
        faults.extend(mismatch(new));
        faults.extend(template(new, "ReplicaSet"));
        return faults;
    };
    let mut faults = selector::check(found, PLACE);
    // Compat: the template is not validated beside a selector that cannot be read.
    if !faults.is_empty() {
        faults.push(Fault::invalid(PLACE, found, "invalid label selector"));
        return faults;
    }
    faults.extend(empty(new, found));
    faults.extend(mismatch(new));
    faults.extend(template(new, "ReplicaSet"));
    faults
}

/// Returns the error for a selector that does not select the pods of the template.
fn mismatch(new: &Value) -> Option<Fault> {
    let labels = object::at(new, &["spec", "template", "metadata", "labels"]);
    let selector = object::at(new, &["spec", "selector"]).filter(|it| !it.is_null());
    let labelled = json!({"metadata": {"labels": labels}});
    let matches = |found| is_empty(found) || Selector::from_object(found).matches(&labelled);
    if selector.is_some_and(matches) {
        return None;
    }
    let rule = "`selector` does not match template `labels`";
    let labels = labels.cloned().unwrap_or(Value::Null);
    Some(Fault::invalid("spec.template.metadata.labels", &labels, rule))
}

/// Validates the template of a kind that runs its pods for ever.
fn template(new: &Value, kind: &str) -> Vec<Fault> {
    let template = object::at(new, &["spec", "template"]).unwrap_or(&Value::Null);
    let mut faults = pod::template(template, "spec.template");
    let policy = object::text(template, &["spec", "restartPolicy"]);
    if matches!(policy, "OnFailure" | "Never") {
        let place = "spec.template.spec.restartPolicy";
        faults.push(Fault::not_supported(place, policy, &["Always"]));
    }
    let deadline = object::at(template, &["spec", "activeDeadlineSeconds"]);
    if deadline.is_some_and(|it| !it.is_null()) {
        let rule = format!("activeDeadlineSeconds in {kind} is not Supported");
        faults.push(Fault::forbidden("spec.template.spec.activeDeadlineSeconds", &rule));
    }
    faults
}

/// Validates a PodDisruptionBudget.
pub(super) fn budget(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let of = |field| object::at(new, &["spec", field]).filter(|it| !it.is_null());
    if of("minAvailable").is_some() && of("maxUnavailable").is_some() {
        let rule = "minAvailable and maxUnavailable cannot be both set";
        let shown = |field| of(field).cloned().unwrap_or_default();
        let mut fault = Fault::invalid("spec", &Value::Null, rule);
        fault.message = format!(
            "Invalid value: {{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\
             \"UnhealthyPodEvictionPolicy\":{}}}: {rule}",
            shown("minAvailable"),
            shown("selector"),
            shown("maxUnavailable"),
            shown("unhealthyPodEvictionPolicy")
        );
        faults.push(fault);
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if let Some(value) = of(field) {
            let place = format!("spec.{field}");
            faults.extend(strategy::amount(value, &place));
            faults.extend(strategy::too_much(value, &place));
        }
    }
    let selected = of("selector").map(|found| selector::check(found, "spec.selector"));
    faults.extend(selected.into_iter().flatten());
    let policy = object::text(new, &["spec", "unhealthyPodEvictionPolicy"]);
    if !matches!(policy, "" | "AlwaysAllow" | "IfHealthyBudget") {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        faults.push(Fault::not_supported("spec.unhealthyPodEvictionPolicy", policy, &known));
    }
    faults
}

/// Validates a Lease.
pub(super) fn lease(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let duration = object::at(new, &["spec", "leaseDurationSeconds"]);
    if let Some(seconds) = duration.filter(|it| it.as_i64().is_some_and(|it| it <= 0)) {
        let place = "spec.leaseDurationSeconds";
        faults.push(Fault::invalid(place, seconds, "must be greater than 0"));
    }
    faults.extend(not_negative(new, &["spec", "leaseTransitions"]));
    faults
}

/// Validates the finalizers of a Namespace.
pub(super) fn namespace(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let list = object::at(new, &["spec", "finalizers"]).and_then(Value::as_array);
    let mut faults = Vec::new();
    for (at, finalizer) in list.into_iter().flatten().filter_map(Value::as_str).enumerate() {
        if !finalizer.contains('/') && finalizer != "kubernetes" {
            let rule = "name is neither a standard finalizer name nor is it fully qualified";
            let place = match old {
                Some(_) => format!("spec.finalizers[{at}]"),
                None => "spec.finalizers".to_owned(),
            };
            faults.push(Fault::invalid(place, &json!(finalizer), rule));
        }
    }
    faults
}
