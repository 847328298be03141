//! The table cells of the built-in kinds.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::{age, network, pod, workload};
use crate::object::{self, at, text};

/// Returns the cells of one object.
pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    if kind == "Event" {
        return event(object, now);
    }
    let mut cells: Vec<Value> = vec![object::name(object).into()];
    cells.extend(after(kind, object, now));
    cells
}

/// Returns the cells of one object after its name.
fn after(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let age = || Value::from(age::since(object::meta(object, "creationTimestamp"), now));
    let count =
        |field: &str| object.get(field).and_then(Value::as_object).map_or(0, serde_json::Map::len);
    match kind {
        "Node" => node(object, age()),
        "Pod" => pod::cells(object, age(), now),
        "Namespace" => vec![text(object, &["status", "phase"]).into(), age()],
        "ConfigMap" => vec![(count("data") + count("binaryData")).into(), age()],
        "Secret" => vec![text(object, &["type"]).into(), count("data").into(), age()],
        "Lease" => vec![text(object, &["spec", "holderIdentity"]).into(), age()],
        "Deployment" | "ReplicaSet" | "DaemonSet" | "Job" => {
            workload::cells(kind, object, age(), now)
        }
        "PodDisruptionBudget" => budget(object, age()),
        "CustomResourceDefinition" | "Role" | "ClusterRole" => {
            vec![object::meta(object, "creationTimestamp").into()]
        }
        "Service" => {
            let (before, behind) = network::service(object);
            [before, vec![age()], behind].concat()
        }
        "Endpoints" => vec![network::endpoints(object).into(), age()],
        "EndpointSlice" => [network::slice(object), vec![age()]].concat(),
        "RoleBinding" | "ClusterRoleBinding" => binding(object, age()),
        "CertificateSigningRequest" => certificate_request(object, age()),
        "PriorityClass" => vec![
            object.get("value").and_then(Value::as_i64).unwrap_or(0).into(),
            object.get("globalDefault").and_then(Value::as_bool).unwrap_or(false).into(),
            age(),
            text(object, &["preemptionPolicy"]).into(),
        ],
        "ValidatingAdmissionPolicy" => {
            let kind = at(object, &["spec", "paramKind"]).filter(|it| !it.is_null());
            let kind = kind.map_or_else(
                || "<unset>".to_owned(),
                |it| format!("{}/{}", text(it, &["apiVersion"]), text(it, &["kind"])),
            );
            vec![list(object, &["spec", "validations"]).len().into(), kind.into(), age()]
        }
        "ValidatingAdmissionPolicyBinding" => {
            vec![text(object, &["spec", "policyName"]).into(), parameter(object).into(), age()]
        }
        _ => vec![age()],
    }
}

fn budget(object: &Value, age: Value) -> Vec<Value> {
    let of = |field: &str| {
        let value = at(object, &["spec", field]).filter(|value| !value.is_null());
        Value::from(value.map_or_else(|| "N/A".to_owned(), super::plain))
    };
    let allowed = at(object, &["status", "disruptionsAllowed"]).and_then(Value::as_u64);
    vec![of("minAvailable"), of("maxUnavailable"), allowed.unwrap_or(0).into(), age]
}

fn binding(object: &Value, age: Value) -> Vec<Value> {
    let role =
        format!("{}/{}", text(object, &["roleRef", "kind"]), text(object, &["roleRef", "name"]));
    let of = |kind: &str| {
        let subjects = list(object, &["subjects"]).iter();
        let found = subjects.filter(|one| text(one, &["kind"]) == kind).map(|one| {
            let name = text(one, &["name"]);
            match kind {
                "ServiceAccount" => format!("{}/{name}", text(one, &["namespace"])),
                _ => name.to_owned(),
            }
        });
        Value::from(found.collect::<Vec<_>>().join(", "))
    };
    vec![role.into(), age, of("User"), of("Group"), of("ServiceAccount")]
}

fn certificate_request(object: &Value, age: Value) -> Vec<Value> {
    let has = |kind: &str| {
        list(object, &["status", "conditions"]).iter().any(|one| text(one, &["type"]) == kind)
    };
    let mut status = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(object, &["status", "certificate"]).is_empty() {
        status.push_str(",Issued");
    }
    let seconds = at(object, &["spec", "expirationSeconds"]).and_then(Value::as_i64);
    vec![
        age,
        or_none(text(object, &["spec", "signerName"]), "<none>"),
        text(object, &["spec", "username"]).into(),
        seconds.map_or_else(|| "<none>".to_owned(), age::human).into(),
        status.into(),
    ]
}

fn parameter(object: &Value) -> String {
    let name = text(object, &["spec", "paramRef", "name"]);
    let namespace = text(object, &["spec", "paramRef", "namespace"]);
    match (name, namespace) {
        ("", _) => "<unset>".to_owned(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    }
}

pub(super) fn pairs(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    let pairs: Vec<String> =
        pairs.map(|(key, value)| format!("{key}={}", super::plain(value))).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

pub(super) fn or_none(value: &str, none: &'static str) -> Value {
    if value.is_empty() { none.into() } else { value.into() }
}

pub(super) fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
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
    let role = |(key, value): (&'_ String, &'_ Value)| match key.as_str() {
        "kubernetes.io/role" => value.as_str().map(str::to_owned),
        _ => key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned),
    };
    let roles: BTreeSet<String> =
        labels.into_iter().flatten().filter_map(role).filter(|role| !role.is_empty()).collect();
    let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
    let address = |kind: &str| {
        let addresses = list(node, &["status", "addresses"]);
        let found = addresses.iter().find(|one| text(one, &["type"]) == kind);
        or_none(found.map_or("", |one| text(one, &["address"])), "<none>")
    };
    let of = |field| text(node, &["status", "nodeInfo", field]);
    let info = |field| or_none(of(field), "<unknown>");
    let kernel = match (info("kernelVersion"), of("architecture")) {
        (Value::String(kernel), architecture) if !architecture.is_empty() => {
            format!("{kernel} ({architecture})").into()
        }
        (kernel, _) => kernel,
    };
    vec![
        status.into(),
        or_none(&roles.join(","), "<none>"),
        age,
        of("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        kernel,
        info("containerRuntimeVersion"),
    ]
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let first_of = |paths: &[&[&str]]| {
        paths.iter().map(|path| text(event, path)).find(|text| !text.is_empty()).unwrap_or("")
    };
    let first = first_of(&[&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]]);
    let series = event.get("series").filter(|series| series.is_object());
    let last = match (series, first_of(&[&["lastTimestamp"], &["deprecatedLastTimestamp"]])) {
        (Some(series), _) => text(series, &["lastObservedTime"]),
        (None, "") => first,
        (None, last) => last,
    };
    let counts = [event.get("count"), event.get("deprecatedCount")];
    let count = match series {
        Some(series) => series.get("count").and_then(Value::as_i64).unwrap_or(0),
        // An event that was seen once may have no count.
        None => {
            counts.into_iter().flatten().filter_map(Value::as_i64).find(|it| *it != 0).unwrap_or(1)
        }
    };
    let about = event.get("involvedObject").or_else(|| event.get("regarding"));
    let about = about.unwrap_or(&Value::Null);
    let mut target = text(about, &["kind"]).to_lowercase();
    if !text(about, &["name"]).is_empty() {
        target = format!("{target}/{}", text(about, &["name"]));
    }
    let source = first_of(&[
        &["source", "component"],
        &["deprecatedSource", "component"],
        &["reportingComponent"],
        &["reportingController"],
    ]);
    let host =
        first_of(&[&["source", "host"], &["deprecatedSource", "host"], &["reportingInstance"]]);
    let source = if host.is_empty() { source.to_owned() } else { format!("{source}, {host}") };
    let message = first_of(&[&["message"], &["note"]]);
    vec![
        age::since(last, now).into(),
        text(event, &["type"]).into(),
        text(event, &["reason"]).into(),
        target.into(),
        text(about, &["fieldPath"]).into(),
        source.into(),
        message.trim().into(),
        age::since(first, now).into(),
        count.into(),
        object::name(event).into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn an_event_row_matches_kubectl() {
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let shown = |event: Value| -> Value {
            let cells = cells("Event", &event, now);
            [0, 3, 5, 7, 8].iter().map(|at| cells[*at].clone()).collect()
        };
        let plain = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "involvedObject": {"kind": "Namespace"}, "reportingComponent": "c",
            "reportingInstance": "i"});
        assert_eq!(shown(plain), json!(["<unknown>", "namespace", "c, i", "<unknown>", 1]));
        let seen = json!({"involvedObject": {"kind": "Pod", "name": "p"}, "count": 3,
            "firstTimestamp": "2026-01-01T00:04:00Z", "eventTime": "2026-01-01T00:03:30Z",
            "source": {"component": "a", "host": "h"}});
        assert_eq!(shown(seen), json!(["60s", "pod/p", "a, h", "60s", 3]));
        let series = json!({"regarding": {"kind": "Pod", "name": "p"}, "deprecatedCount": 9,
            "series": {"count": 4, "lastObservedTime": "2026-01-01T00:04:50.000000Z"},
            "eventTime": "2026-01-01T00:04:00.000000Z", "deprecatedLastTimestamp":
            "2026-01-01T00:01:00Z", "reportingController": "r"});
        assert_eq!(shown(series), json!(["10s", "pod/p", "r", "60s", 4]));
    }

    #[test]
    fn every_row_has_a_cell_for_every_column() {
        let now = "2026-01-01T00:00:42Z".parse().unwrap();
        for resource in crate::resource::builtin::all() {
            let kind = &resource.kind;
            let columns = super::super::columns::of_kind(kind);
            assert_eq!(cells(kind, &json!({}), now).len(), columns.len(), "{kind}");
        }
    }
}
