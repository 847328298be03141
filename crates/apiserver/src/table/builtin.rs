//! The table columns and cells of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, column};
use crate::object::{self, at, text};

/// The columns of a kind after its name: name, type, priority.
type Columns = &'static [(&'static str, &'static str, i64)];

const NODE: Columns = &[
    ("Status", "string", 0),
    ("Roles", "string", 0),
    ("Age", "string", 0),
    ("Version", "string", 0),
    ("Internal-IP", "string", 1),
    ("External-IP", "string", 1),
    ("OS-Image", "string", 1),
    ("Kernel-Version", "string", 1),
    ("Container-Runtime", "string", 1),
];
const POD: Columns = &[
    ("Ready", "string", 0),
    ("Status", "string", 0),
    ("Restarts", "string", 0),
    ("Age", "string", 0),
    ("IP", "string", 1),
    ("Node", "string", 1),
    ("Nominated Node", "string", 1),
    ("Readiness Gates", "string", 1),
];
const DEPLOYMENT: Columns = &[
    ("Ready", "string", 0),
    ("Up-to-date", "integer", 0),
    ("Available", "integer", 0),
    ("Age", "string", 0),
];
const DAEMON_SET: Columns = &[
    ("Desired", "integer", 0),
    ("Current", "integer", 0),
    ("Ready", "integer", 0),
    ("Up-to-date", "integer", 0),
    ("Available", "integer", 0),
    ("Node Selector", "string", 0),
    ("Age", "string", 0),
];
const BUDGET: Columns = &[
    ("Min Available", "string", 0),
    ("Max Unavailable", "string", 0),
    ("Allowed Disruptions", "integer", 0),
    ("Age", "string", 0),
];
const EVENT: Columns = &[
    ("Last Seen", "string", 0),
    ("Type", "string", 0),
    ("Reason", "string", 0),
    ("Object", "string", 0),
    ("Subobject", "string", 1),
    ("Source", "string", 1),
    ("Message", "string", 0),
    ("First Seen", "string", 1),
    ("Count", "string", 1),
    ("Name", "string", 1),
];

fn after_name(kind: &str) -> Columns {
    match kind {
        "Node" => NODE,
        "Pod" => POD,
        "Namespace" => &[("Status", "string", 0), ("Age", "string", 0)],
        "ConfigMap" => &[("Data", "string", 0), ("Age", "string", 0)],
        "Secret" => &[("Type", "string", 0), ("Data", "string", 0), ("Age", "string", 0)],
        "Lease" => &[("Holder", "string", 0), ("Age", "string", 0)],
        "Deployment" => DEPLOYMENT,
        "DaemonSet" => DAEMON_SET,
        "PodDisruptionBudget" => BUDGET,
        "CustomResourceDefinition" => &[("Created At", "date", 0)],
        _ => &[("Age", "string", 0)],
    }
}

/// Returns the columns of a kind.
pub(super) fn columns(kind: &str) -> Vec<Value> {
    let shown = |(name, kind, priority): &(&str, &str, i64)| column(name, kind, "", *priority);
    if kind == "Event" {
        return EVENT.iter().map(shown).collect();
    }
    let mut out = vec![column("Name", "string", "name", 0)];
    out.extend(after_name(kind).iter().map(shown));
    out
}

/// Returns the cells of one object.
pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    if kind == "Event" {
        return event(object, now);
    }
    let age = || age::since(object::meta(object, "creationTimestamp"), now).into();
    let number = |path: &[&str]| at(object, path).and_then(Value::as_u64).unwrap_or(0);
    let count =
        |field: &str| object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    let mut cells: Vec<Value> = vec![object::name(object).into()];
    match kind {
        "Node" => cells.extend(node(object, age())),
        "Pod" => cells.extend(pod(object, age(), now)),
        "Namespace" => cells.extend([text(object, &["status", "phase"]).into(), age()]),
        "ConfigMap" => {
            cells.extend([(count("data") + count("binaryData")).into(), age()]);
        }
        "Secret" => {
            cells.extend([text(object, &["type"]).into(), count("data").into(), age()]);
        }
        "Lease" => cells.extend([text(object, &["spec", "holderIdentity"]).into(), age()]),
        "Deployment" => {
            let ready = number(&["status", "readyReplicas"]);
            let wanted = number(&["spec", "replicas"]);
            cells.extend([
                format!("{ready}/{wanted}").into(),
                number(&["status", "updatedReplicas"]).into(),
                number(&["status", "availableReplicas"]).into(),
                age(),
            ]);
        }
        "DaemonSet" => {
            for field in [
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
            ] {
                cells.push(number(&["status", field]).into());
            }
            let selector = at(object, &["spec", "template", "spec", "nodeSelector"]);
            cells.extend([pairs(selector).into(), age()]);
        }
        "PodDisruptionBudget" => {
            for field in ["minAvailable", "maxUnavailable"] {
                let value = at(object, &["spec", field]).filter(|value| !value.is_null());
                cells.push(value.map_or_else(|| "N/A".to_owned(), super::plain).into());
            }
            cells.extend([number(&["status", "disruptionsAllowed"]).into(), age()]);
        }
        "CustomResourceDefinition" => {
            cells.push(object::meta(object, "creationTimestamp").into());
        }
        _ => cells.push(age()),
    }
    cells
}

fn pairs(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", super::plain(value))).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

fn or_none(value: &str, none: &'static str) -> Value {
    if value.is_empty() { none.into() } else { value.into() }
}

fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn node(node: &Value, age: Value) -> Vec<Value> {
    let ready = list(node, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, &["type"]) == "Ready")
        .map(|condition| text(condition, &["status"]));
    let mut status = match ready {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(node, &["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flat_map(|labels| labels.keys())
        .filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    let address = |kind: &str| {
        let addresses = list(node, &["status", "addresses"]);
        let found = addresses.iter().find(|one| text(one, &["type"]) == kind);
        or_none(found.map_or("", |one| text(one, &["address"])), "<none>")
    };
    let info = |field| or_none(text(node, &["status", "nodeInfo", field]), "<unknown>");
    vec![
        status.into(),
        or_none(&roles.join(","), "<none>"),
        age,
        text(node, &["status", "nodeInfo", "kubeletVersion"]).into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn pod(pod: &Value, age: Value, _now: Timestamp) -> Vec<Value> {
    let statuses = list(pod, &["status", "containerStatuses"]);
    let ready = statuses
        .iter()
        .filter(|one| one.get("ready").and_then(Value::as_bool) == Some(true))
        .count();
    let restarts: u64 =
        statuses.iter().filter_map(|one| one.get("restartCount").and_then(Value::as_u64)).sum();
    let waiting = statuses.iter().rev().find_map(|one| {
        let reason = ["waiting", "terminated"]
            .iter()
            .map(|state| text(one, &["state", state, "reason"]))
            .find(|reason| !reason.is_empty());
        reason.map(str::to_owned)
    });
    let phase = text(pod, &["status", "phase"]);
    let reason = text(pod, &["status", "reason"]);
    let status = if object::is_deleting(pod) {
        "Terminating".to_owned()
    } else {
        waiting.unwrap_or_else(|| if reason.is_empty() { phase } else { reason }.to_owned())
    };
    let containers = list(pod, &["spec", "containers"]).len();
    vec![
        format!("{ready}/{containers}").into(),
        status.into(),
        restarts.to_string().into(),
        age,
        or_none(text(pod, &["status", "podIP"]), "<none>"),
        or_none(text(pod, &["spec", "nodeName"]), "<none>"),
        or_none(text(pod, &["status", "nominatedNodeName"]), "<none>"),
        "<none>".into(),
    ]
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let first_of = |paths: &[&[&str]]| {
        paths.iter().map(|path| text(event, path)).find(|text| !text.is_empty()).unwrap_or("")
    };
    let first = first_of(&[
        &["firstTimestamp"],
        &["deprecatedFirstTimestamp"],
        &["eventTime"],
        &["metadata", "creationTimestamp"],
    ]);
    let last = first_of(&[
        &["series", "lastObservedTime"],
        &["lastTimestamp"],
        &["deprecatedLastTimestamp"],
        &["eventTime"],
        &["metadata", "creationTimestamp"],
    ]);
    let count = [at(event, &["series", "count"]), event.get("count"), event.get("deprecatedCount")];
    let count = count.into_iter().flatten().find_map(Value::as_u64).unwrap_or(1);
    let about = event.get("involvedObject").or_else(|| event.get("regarding"));
    let about = about.unwrap_or(&Value::Null);
    let about_text =
        format!("{}/{}", text(about, &["kind"]).to_lowercase(), text(about, &["name"]));
    let source = first_of(&[
        &["source", "component"],
        &["deprecatedSource", "component"],
        &["reportingComponent"],
        &["reportingController"],
    ]);
    let host = first_of(&[&["source", "host"], &["deprecatedSource", "host"]]);
    let source = if host.is_empty() { source.to_owned() } else { format!("{source}, {host}") };
    let message = first_of(&[&["message"], &["note"]]);
    vec![
        age::since(last, now).into(),
        text(event, &["type"]).into(),
        text(event, &["reason"]).into(),
        about_text.into(),
        text(about, &["fieldPath"]).into(),
        source.into(),
        message.trim().into(),
        age::since(first, now).into(),
        json!(count.to_string()),
        object::name(event).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_row_matches_kubectl() {
        let node = json!({"metadata": {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"node-role.kubernetes.io/worker": "", "a": "b"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1.36.0"}}});
        let now = "2026-01-01T00:00:42Z".parse().unwrap();
        let cells = cells("Node", &node, now);
        let shown: Vec<&str> = cells.iter().take(5).filter_map(Value::as_str).collect();
        assert_eq!(shown, ["n1", "Ready,SchedulingDisabled", "worker", "42s", "v1.36.0"]);
    }

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        let now = "2026-01-01T00:00:42Z".parse().unwrap();
        for resource in crate::resource::builtin::all() {
            let kind = &resource.kind;
            assert_eq!(cells(kind, &json!({}), now).len(), columns(kind).len(), "{kind}");
        }
    }
}
