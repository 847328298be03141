//! Validation of Deployments, ReplicaSets, DaemonSets, PodDisruptionBudgets and Leases.

use serde_json::{Value, json};

use super::{not_negative, pod, unchanged};
use crate::{failure::Fault, object, select::Selector};

/// Validates a Deployment.
pub(super) fn deployment(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(not_negative(new, &["spec", "replicas"]));
    faults.extend(selector(new));
    faults.extend(template(new));
    match object::text(new, &["spec", "strategy", "type"]) {
        "Recreate" if object::at(new, &["spec", "strategy", "rollingUpdate"]).is_some() => {
            let rule = "may not be specified when strategy `type` is 'Recreate'";
            faults.push(Fault::forbidden("spec.strategy.rollingUpdate", rule));
        }
        "Recreate" | "RollingUpdate" => {}
        other => {
            let known = ["Recreate", "RollingUpdate"];
            let mut fault = Fault::not_supported("spec.strategy", other, &known);
            // Compat: the message shows the whole strategy.
            fault.message = fault.message.replacen(
                &json!(other).to_string(),
                &format!("{{\"Type\":{},\"RollingUpdate\":null}}", json!(other)),
                1,
            );
            faults.push(fault);
        }
    }
    faults.extend(not_negative(new, &["spec", "minReadySeconds"]));
    faults.extend(not_negative(new, &["spec", "revisionHistoryLimit"]));
    faults.extend(old.and_then(|old| unchanged(&["spec", "selector"], new, old)));
    faults
}

/// Validates a ReplicaSet.
pub(super) fn replica_set(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(not_negative(new, &["spec", "replicas"]));
    faults.extend(not_negative(new, &["spec", "minReadySeconds"]));
    faults.extend(selector(new));
    faults.extend(template(new));
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
    if object::at(new, &["spec", "selector"]).is_some_and(|it| !it.is_null()) {
        faults.extend(selector(new));
    }
    faults.extend(template(new));
    let strategy = object::text(new, &["spec", "updateStrategy", "type"]);
    if !matches!(strategy, "OnDelete" | "RollingUpdate") {
        let known = ["RollingUpdate", "OnDelete"];
        faults.push(Fault::not_supported("spec.updateStrategy.type", strategy, &known));
    }
    faults
}

fn is_empty(selector: &Value) -> bool {
    selector.as_object().is_none_or(|map| {
        map.values().all(|part| part.as_object().is_some_and(serde_json::Map::is_empty))
    })
}

fn selector(new: &Value) -> Vec<Fault> {
    match object::at(new, &["spec", "selector"]).filter(|it| !it.is_null()) {
        None => vec![Fault::required("spec.selector", "")],
        Some(selector) if is_empty(selector) => {
            let kind = if new.get("kind") == Some(&json!("DaemonSet")) {
                "daemonset"
            } else {
                "deployment"
            };
            let rule = format!("empty selector is invalid for {kind}");
            vec![Fault::invalid("spec.selector", selector, &rule)]
        }
        Some(_) => Vec::new(),
    }
}

fn template(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    let place = "spec.template.metadata.labels";
    let labels = object::at(new, &["spec", "template", "metadata", "labels"]);
    let selector = object::at(new, &["spec", "selector"]).filter(|it| !it.is_null());
    if selector.is_none_or(|selector| !is_empty(selector)) {
        let labelled = json!({"metadata": {"labels": labels}});
        let matches = |selector| Selector::from_object(selector).matches(&labelled);
        if !selector.is_some_and(matches) {
            let rule = "`selector` does not match template `labels`";
            let labels = labels.cloned().unwrap_or(Value::Null);
            faults.push(Fault::invalid(place, &labels, rule));
        }
    }
    let spec = object::at(new, &["spec", "template", "spec"]).unwrap_or(&Value::Null);
    faults.extend(pod::spec(spec, "spec.template.spec"));
    let policy = object::text(spec, &["restartPolicy"]);
    if matches!(policy, "OnFailure" | "Never") {
        let place = "spec.template.spec.restartPolicy";
        faults.push(Fault::not_supported(place, policy, &["Always"]));
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
            faults.extend(amount(value, &format!("spec.{field}")));
        }
    }
    let policy = object::text(new, &["spec", "unhealthyPodEvictionPolicy"]);
    if !matches!(policy, "" | "AlwaysAllow" | "IfHealthyBudget") {
        let known = ["AlwaysAllow", "IfHealthyBudget"];
        faults.push(Fault::not_supported("spec.unhealthyPodEvictionPolicy", policy, &known));
    }
    faults
}

/// Validates a number or a percentage.
fn amount(value: &Value, place: &str) -> Option<Fault> {
    if let Some(text) = value.as_str() {
        let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<u32>().ok());
        return match percent {
            None => {
                let rule = "a valid percent string must be a numeric string followed by an ending \
                    '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                Some(Fault::invalid(place, value, rule))
            }
            Some(percent) if percent > 100 => {
                Some(Fault::invalid(place, value, "must not be greater than 100%"))
            }
            Some(_) => None,
        };
    }
    value
        .as_i64()
        .filter(|number| *number < 0)
        .map(|_| Fault::invalid(place, value, "must be greater than or equal to 0"))
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

/// Validates an Event.
pub(super) fn event(new: &Value) -> Vec<Fault> {
    let about = object::text(new, &["involvedObject", "namespace"]);
    let own = object::namespace(new);
    // An event about an object without a namespace is in the namespace `default`.
    let is_fine = about == own || (about.is_empty() && own == "default");
    if is_fine {
        return Vec::new();
    }
    let rule = "does not match event.namespace";
    vec![Fault::invalid("involvedObject.namespace", &json!(about), rule)]
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
