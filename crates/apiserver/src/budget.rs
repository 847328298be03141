//! PodDisruptionBudgets: counts pods and computes the number of allowed disruptions.

use std::borrow::Cow;

use serde_json::Value;

use crate::{object, select::Selector};

/// The pod counts that a budget's status reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DisruptionCounts {
    pub(crate) expected: u64,
    pub(crate) healthy: u64,
    pub(crate) desired: u64,
}

impl DisruptionCounts {
    /// Returns the number of disruptions that the budget allows now.
    pub(crate) fn allowed(self) -> u64 {
        self.healthy.saturating_sub(self.desired)
    }
}

/// Returns the budget with its status brought up to date, or `None` if the status is current.
pub(crate) fn with_status(budget: &Value, counts: DisruptionCounts) -> Option<Value> {
    let mut new = budget.clone();
    let generation = object::at(budget, &["metadata", "generation"]).cloned();
    let status = object::map_mut(object::map_of(&mut new), "status");
    for (field, count) in [
        ("expectedPods", counts.expected),
        ("currentHealthy", counts.healthy),
        ("desiredHealthy", counts.desired),
        ("disruptionsAllowed", counts.allowed()),
    ] {
        status.insert(field.into(), count.into());
    }
    status.extend(generation.map(|generation| ("observedGeneration".to_owned(), generation)));
    (new != *budget).then_some(new)
}

/// Returns the selector of a budget's pods. A budget without one selects none.
pub(crate) fn selector(budget: &Value) -> Option<Selector> {
    object::at(budget, &["spec", "selector"]).map(Selector::from_object)
}

/// Returns true if the budget selects this pod.
pub(crate) fn covers(budget: &Value, pod: &Value) -> bool {
    object::namespace(budget) == object::namespace(pod)
        && selector(budget).is_some_and(|selector| selector.matches(pod))
}

/// Returns true if the pod has finished: succeeded or failed.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(object::text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Returns true if the pod's `Ready` condition is true.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = object::at(pod, &["status", "conditions"]).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        object::text(condition, &["type"]) == "Ready"
            && object::text(condition, &["status"]) == "True"
    })
}

/// Counts the pods that the budget selects, which are given.
pub(crate) fn counts<'a>(
    budget: &Value,
    pods: impl Iterator<Item = Cow<'a, Value>>,
) -> DisruptionCounts {
    let (mut expected, mut healthy) = (0, 0);
    for pod in pods.filter(|pod| !is_finished(pod)) {
        expected += 1;
        if is_ready(&pod) && !object::is_deleting(&pod) {
            healthy += 1;
        }
    }
    let spec = |field| object::at(budget, &["spec", field]).filter(|value| !value.is_null());
    let desired = match (spec("minAvailable"), spec("maxUnavailable")) {
        (Some(least), _) => count(least, expected),
        (None, Some(most)) => expected.saturating_sub(count(most, expected)),
        (None, None) => expected.saturating_sub(1),
    };
    DisruptionCounts { expected, healthy, desired }
}

/// Returns the number that `value` gives: an integer, or a percentage of `of`, rounded up as
/// Kubernetes does.
fn count(value: &Value, of: u64) -> u64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
    match percent {
        Some(percent) => (percent.saturating_mul(of)).div_ceil(100),
        None => value.as_u64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Builds one pod per letter: `r` ready, `n` not ready, `d` ready but being deleted, `o`
    /// finished.
    fn pods(letters: &str) -> Vec<Value> {
        letters
            .chars()
            .map(|letter| {
                let ready = if matches!(letter, 'r' | 'd') { "True" } else { "False" };
                let phase = if letter == 'o' { "Succeeded" } else { "Running" };
                let mut pod = json!({"metadata": {"namespace": "x", "labels": {"app": "a"}},
                    "status": {"phase": phase,
                               "conditions": [{"type": "Ready", "status": ready}]}});
                if letter == 'd' {
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
                pod
            })
            .collect()
    }

    #[test]
    fn budgets_are_counted_from_the_selected_pods() {
        for (rule, letters, allowed) in [
            (json!({"minAvailable": 2}), "rrr", 1),
            (json!({"minAvailable": 2}), "rrn", 0),
            (json!({"minAvailable": 2}), "rrd", 0),
            (json!({"minAvailable": "50%"}), "rrr", 1),
            (json!({"minAvailable": "100%"}), "rrr", 0),
            (json!({"maxUnavailable": 1}), "rrr", 1),
            (json!({"maxUnavailable": 1}), "rrn", 0),
            (json!({"maxUnavailable": "34%"}), "rrr", 2),
            (json!({"maxUnavailable": 0}), "rr", 0),
            (json!({"maxUnavailable": 1}), "rro", 1),
            (json!({}), "rr", 1),
        ] {
            let mut spec = rule.clone();
            spec["selector"] = json!({"matchLabels": {"app": "a"}});
            let budget = json!({"metadata": {"namespace": "x"}, "spec": spec});
            let counts = counts(&budget, pods(letters).iter().map(Cow::Borrowed));
            assert_eq!(counts.allowed(), allowed, "{rule} {letters}");
        }
    }

    #[test]
    fn a_budget_without_selector_selects_nothing() {
        let pod = pods("r").remove(0);
        assert!(!covers(&json!({"metadata": {"namespace": "x"}, "spec": {}}), &pod));
        let everything = json!({"metadata": {"namespace": "x"}, "spec": {"selector": {}}});
        assert!(covers(&everything, &pod));
    }
}
