//! Validation of Events.
//!
//! Compat: events that are written through `events.k8s.io` are validated by more rules, under the names
//! that the fields of a core event have.

use serde_json::{Value, json};

use crate::{
    admit::name,
    failure::Fault,
    object,
    resource::{Form, Resource},
};

/// Maximum length of the names in an event, and of its message.
const MAX_NAME: usize = 128;
const MAX_NOTE: usize = 1024;

const IMMUTABLE: &str = "field is immutable";

/// Validates an Event, and its change from `old`.
pub(super) fn check(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let is_new_form = resource.form == Form::NewEvent;
    let mut faults = any(new, is_new_form);
    match old {
        _ if !is_new_form => {}
        None => faults.extend(created(new)),
        Some(old) => faults.extend(changed(new, old)),
    }
    faults
}

/// Applies the rules for all events.
fn any(new: &Value, is_new_form: bool) -> Vec<Fault> {
    let (about, own) = (text(new, &["involvedObject", "namespace"]), object::namespace(new));
    let is_timed = !text(new, &["eventTime"]).is_empty();
    let is_placed = match (about, is_timed) {
        // An event about an object without a namespace is in one of the cluster.
        ("", true) => matches!(own, "default" | "kube-system"),
        ("", false) => own == "default",
        (_, true) => true,
        (about, false) => about == own,
    };
    let mut faults = Vec::new();
    if !is_placed {
        let rule = "does not match event.namespace";
        faults.push(Fault::invalid("involvedObject.namespace", &json!(about), rule));
    }
    if !is_timed {
        return faults;
    }
    let controller = text(new, &["reportingComponent"]);
    let place = if is_new_form { "reportingController" } else { "reportingComponent" };
    faults.extend(controller.is_empty().then(|| Fault::required(place, "")));
    for rule in name::qualified_faults(controller) {
        faults.push(Fault::invalid(place, &json!(controller), &rule));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let given = text(new, &[field]);
        faults.extend(given.is_empty().then(|| Fault::required(field, "")));
        faults.extend(too_long(field, given, MAX_NAME));
    }
    faults.extend(too_long("message", text(new, &["message"]), MAX_NOTE));
    faults
}

fn text<'a>(event: &'a Value, path: &[&str]) -> &'a str {
    object::text(event, path)
}

fn too_long(field: &str, given: &str, most: usize) -> Option<Fault> {
    let rule = format!("can have at most {most} characters");
    (given.len() > most).then(|| Fault::invalid(field, &json!(""), &rule))
}

/// Applies the rules for new events of `events.k8s.io`.
fn created(new: &Value) -> Vec<Fault> {
    let mut faults = series(new);
    let is_set = |field: &str| !text(new, &[field]).is_empty();
    if !is_set("eventTime") {
        faults.push(Fault::required("eventTime", ""));
    }
    let mut wrong = |field: &str, rule: &str| {
        faults.push(Fault::invalid(field, &json!(""), rule));
    };
    let kind = text(new, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        wrong("type", &format!("has invalid value: {kind}"));
    }
    let is_counted = new.get("count").and_then(Value::as_i64).is_some_and(|count| count != 0);
    let has_source = ["component", "host"].iter().any(|it| !text(new, &["source", it]).is_empty());
    for (field, is_used) in [
        ("firstTimestamp", is_set("firstTimestamp")),
        ("lastTimestamp", is_set("lastTimestamp")),
        ("count", is_counted),
        ("source", has_source),
    ] {
        if is_used {
            wrong(field, "needs to be unset");
        }
    }
    faults
}

fn series(new: &Value) -> Vec<Fault> {
    let Some(series) = new.get("series").filter(|series| series.is_object()) else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
        faults.push(Fault::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if text(series, &["lastObservedTime"]).is_empty() {
        faults.push(Fault::required("series.lastObservedTime", ""));
    }
    faults
}

/// Applies the rules for changes of events through `events.k8s.io`.
fn changed(new: &Value, old: &Value) -> Vec<Fault> {
    let (nothing, none, zero) = (json!(""), Value::Null, json!(0));
    let mut faults = Vec::new();
    if new.get("series") != old.get("series") {
        faults.extend(series(new));
    }
    for (field, shown, absent) in [
        ("involvedObject", "involvedObject", &none),
        // Compat: a changed reason is reported twice.
        ("reason", "reason", &nothing),
        ("message", "message", &nothing),
        ("source", "source", &none),
        ("firstTimestamp", "firstTimestamp", &none),
        ("lastTimestamp", "lastTimestamp", &none),
        ("count", "count", &zero),
        ("reason", "reason", &nothing),
        ("type", "type", &nothing),
        ("eventTime", "eventTime", &none),
        ("action", "action", &nothing),
        ("related", "related", &none),
        ("reportingComponent", "reportingController", &nothing),
        ("reportingInstance", "reportingInstance", &nothing),
    ] {
        if new.get(field) != old.get(field) {
            let now = new.get(field).unwrap_or(absent);
            faults.push(Fault::invalid(shown, now, IMMUTABLE));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;

    fn fields(group: &str, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut all = builtin::all();
        let resource = all.find(|one| one.kind == "Event" && one.group == group).unwrap();
        check(&resource, new, old).into_iter().map(|fault| fault.field).collect()
    }

    #[test]
    fn events_of_the_new_group_are_complete() {
        let event = json!({"metadata": {"namespace": "n"}, "involvedObject": {"namespace": "m"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "R",
            "action": "A", "reportingComponent": "a.b/c", "reportingInstance": "i"});
        assert_eq!(fields("events.k8s.io", &event, None), [""; 0]);
        let mut wrong = event.clone();
        for (field, value) in [
            ("reportingComponent", json!("")),
            ("action", json!("x".repeat(129))),
            ("message", json!("x".repeat(1025))),
            ("type", json!("Good")),
            ("count", json!(1)),
            ("series", json!({"count": 1})),
        ] {
            wrong[field] = value;
        }
        let expected = [
            "reportingController",
            "reportingController",
            "reportingController",
            "action",
            "message",
            "series.count",
            "series.lastObservedTime",
            "type",
            "count",
        ];
        assert_eq!(fields("events.k8s.io", &wrong, None), expected);
        let component = "reportingComponent";
        assert_eq!(
            fields("", &wrong, None),
            [component, component, component, "action", "message"]
        );
        assert_eq!(
            fields("events.k8s.io", &json!({"metadata": {"namespace": "default"}}), None),
            ["eventTime", "type"]
        );
        let mut changed = event.clone();
        changed["reason"] = json!("S");
        changed["reportingComponent"] = json!("d");
        changed["series"] = json!({"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"});
        assert_eq!(
            fields("events.k8s.io", &changed, Some(&event)),
            ["reason", "reason", "reportingController"]
        );
        assert_eq!(fields("", &changed, Some(&event)), [""; 0]);
    }

    #[test]
    fn an_event_is_in_the_namespace_of_its_object() {
        let about = |own: &str, namespace: &str| json!({"metadata": {"namespace": own}, "involvedObject": {"namespace": namespace}});
        for (own, namespace, fits) in
            [("n", "n", true), ("n", "m", false), ("default", "", true), ("n", "", false)]
        {
            assert_eq!(fields("", &about(own, namespace), None).is_empty(), fits, "{own}");
        }
    }
}
