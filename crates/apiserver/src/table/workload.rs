//! The cells of kinds that keep pods.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age,
    builtin::{list, pairs},
};
use crate::object::{self, at, text};

/// Returns the names and the images of the containers of a template.
fn containers(object: &Value) -> [Value; 2] {
    let of = |field| {
        let all = list(object, &["spec", "template", "spec", "containers"]).iter();
        Value::from(all.map(|one| text(one, &[field])).collect::<Vec<_>>().join(","))
    };
    [of("name"), of("image")]
}

/// Returns a label selector as kubectl writes it.
fn selector(object: &Value) -> String {
    let selector = at(object, &["spec", "selector"]).unwrap_or(&Value::Null);
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let mut parts: Vec<(String, String)> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), format!("{key}={}", value.as_str().unwrap_or(""))))
        .collect();
    for one in list(selector, &["matchExpressions"]) {
        let key = text(one, &["key"]);
        let mut values: Vec<&str> =
            list(one, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let shown = match text(one, &["operator"]) {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        parts.push((key.to_owned(), shown));
    }
    parts.sort_by(|a, b| a.0.cmp(&b.0));
    parts.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>().join(",")
}

/// Returns a label selector, or a word for none.
fn selector_or_none(object: &Value) -> Value {
    let shown = selector(object);
    if shown.is_empty() { "<none>".into() } else { shown.into() }
}

/// Returns the cells of a kind that keeps pods.
pub(super) fn cells(kind: &str, object: &Value, age: Value, now: Timestamp) -> Vec<Value> {
    let number = |path: &[&str]| at(object, path).and_then(Value::as_u64).unwrap_or(0);
    let mut cells: Vec<Value> = match kind {
        "Deployment" => {
            let ready = number(&["status", "readyReplicas"]);
            let wanted = number(&["spec", "replicas"]);
            vec![
                format!("{ready}/{wanted}").into(),
                number(&["status", "updatedReplicas"]).into(),
                number(&["status", "availableReplicas"]).into(),
            ]
        }
        "ReplicaSet" => vec![
            number(&["spec", "replicas"]).into(),
            number(&["status", "replicas"]).into(),
            number(&["status", "readyReplicas"]).into(),
        ],
        "DaemonSet" => {
            let fields = [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ];
            let counts = fields.iter().map(|field| number(&["status", field]).into());
            let selector = at(object, &["spec", "template", "spec", "nodeSelector"]);
            counts.chain([pairs(selector).into()]).collect()
        }
        _ => job(object, now),
    };
    cells.push(age);
    cells.extend(containers(object));
    cells.push(match kind {
        "Deployment" => selector(object).into(),
        _ => selector_or_none(object),
    });
    cells
}

/// Returns the cells of a Job before its age.
fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    let number = |path: &[&str]| at(job, path).and_then(Value::as_i64);
    let done = number(&["status", "succeeded"]).unwrap_or(0);
    let parallel = number(&["spec", "parallelism"]).unwrap_or(0);
    let completions = match number(&["spec", "completions"]) {
        Some(wanted) => format!("{done}/{wanted}"),
        None if parallel > 1 => format!("{done}/1 of {parallel}"),
        None => format!("{done}/1"),
    };
    let started = text(job, &["status", "startTime"]);
    let ended = text(job, &["status", "completionTime"]).parse().unwrap_or(now);
    let duration = if started.is_empty() { String::new() } else { age::since(started, ended) };
    vec![job_status(job).into(), completions.into(), duration.into()]
}

fn job_status(job: &Value) -> &'static str {
    let has = |kind: &str| {
        let all = list(job, &["status", "conditions"]);
        let found = all.iter().find(|one| text(one, &["type"]) == kind);
        found.is_some_and(|one| text(one, &["status"]) == "True")
    };
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if object::is_deleting(job) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_written_by_key() {
        let object = json!({"spec": {"selector": {"matchLabels": {"b": "c"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "DoesNotExist"}]}}});
        assert_eq!(selector(&object), "a in (x,y),b=c,!d");
    }

    #[test]
    fn a_job_shows_how_long_it_ran() {
        let object = json!({"spec": {"completions": 2}, "status": {"succeeded": 2,
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:07Z",
            "conditions": [{"type": "Complete", "status": "True"}]}});
        let now = "2026-01-02T00:00:00Z".parse().unwrap();
        assert_eq!(job(&object, now), ["Complete", "2/2", "7s"]);
    }
}
