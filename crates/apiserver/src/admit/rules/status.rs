//! Validation of the counts in the status of workloads.

use serde_json::Value;

use super::not_negative;
use crate::{failure::Fault, object, resource::Resource};

/// Counts that are not negative, in the order in which errors name them.
fn counts(resource: &Resource) -> &'static [&'static str] {
    match resource.kind.as_str() {
        "Deployment" => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "collisionCount",
        ],
        "DaemonSet" => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        "PodDisruptionBudget" => {
            &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
        }
        _ => &[],
    }
}

/// Validates a status that is written.
pub(in crate::admit) fn check(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let counts = counts(resource);
    let mut faults: Vec<Fault> =
        counts.iter().filter_map(|field| not_negative(new, &["status", field])).collect();
    let of = |object: &Value, field: &str| {
        object::at(object, &["status", field]).and_then(Value::as_i64).unwrap_or(0)
    };
    let mut limit = |field: &str, other: &str, rule: &str| {
        if counts.contains(&field) && of(new, field) > of(new, other) {
            faults.push(Fault::invalid(format!("status.{field}"), &of(new, field).into(), rule));
        }
    };
    if counts.contains(&"replicas") {
        let rule = "cannot be greater than status.replicas";
        for field in ["updatedReplicas", "readyReplicas", "availableReplicas"] {
            limit(field, "replicas", rule);
        }
        limit("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas");
    }
    let field = "collisionCount";
    if counts.contains(&field) && old.is_some_and(|old| of(new, field) < of(old, field)) {
        let place = format!("status.{field}");
        faults.push(Fault::invalid(place, &of(new, field).into(), "cannot be decremented"));
    }
    faults
}
