//! Defaults and initial status that the server fills into objects of the built-in kinds.

mod batch;
mod pod;
mod policy;
mod service;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    clock, object,
    resource::{Resource, builtin::RBAC},
};

/// Annotation with the number of changes of a DaemonSet's template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Fills in the initial status and the defaults of a new object.
pub(crate) fn new_object(resource: &Resource, new: &mut Value, now: Timestamp) {
    if resource.custom {
        if resource.status {
            object::map_of(new).remove("status");
        }
        return;
    }
    let map = object::map_of(new);
    match resource.kind.as_str() {
        "Namespace" => {
            map.insert("status".into(), json!({"phase": "Active"}));
            let spec = object::map_mut(map, "spec");
            let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
            if let Value::Array(list) = finalizers
                && !list.contains(&json!("kubernetes"))
            {
                list.push("kubernetes".into());
            }
        }
        "Pod" => {
            pod::admit(object::map_mut(map, "spec"));
            let class = pod::quality_of_service(map.get("spec").unwrap_or(&Value::Null));
            let mut status = json!({"phase": "Pending", "qosClass": class});
            let gates = map.get("spec").and_then(|spec| spec.get("schedulingGates"));
            if gates.and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
                let condition = json!({"type": "PodScheduled", "status": "False",
                    "reason": "SchedulingGated", "lastTransitionTime": clock::rfc3339(now),
                    "message": "Scheduling is blocked due to non-empty scheduling gates"});
                object::map_of(&mut status).insert("conditions".into(), json!([condition]));
            }
            map.insert("status".into(), status);
        }
        "DaemonSet" => {
            map.remove("status");
            object::map_mut(object::meta_mut(new), "annotations")
                .insert(TEMPLATE_GENERATION.into(), "1".into());
        }
        "CertificateSigningRequest"
        | "Deployment"
        | "PodDisruptionBudget"
        | "ReplicaSet"
        | "ValidatingAdmissionPolicy" => {
            map.remove("status");
        }
        "Job" => {
            map.remove("status");
            batch::select(new);
        }
        "Service" => {
            map.remove("status");
            service::allocate(new);
        }
        _ => {}
    }
}

/// Fills in the defaults of an object when it is read, before anything else looks at it.
pub(crate) fn fill(resource: &Resource, new: &mut Value) {
    if resource.custom {
        return;
    }
    let name = object::name(new).to_owned();
    let map = object::map_of(new);
    match resource.kind.as_str() {
        "Namespace" if !name.is_empty() => {
            let labels = object::map_mut(object::meta_mut(new), "labels");
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
        "Node" => {
            if let Some(Value::Object(spec)) = map.get_mut("spec") {
                pair(spec, "podCIDR", "podCIDRs", None);
            }
            let status = object::map_mut(map, "status");
            if let (Some(capacity), None) =
                (status.get("capacity").cloned(), status.get("allocatable"))
            {
                status.insert("allocatable".into(), capacity);
            }
        }
        "Secret" => secret(map),
        "Pod" => {
            if let Some(Value::Object(status)) = map.get_mut("status") {
                pair(status, "podIP", "podIPs", Some("ip"));
            }
            let spec = object::map_mut(map, "spec");
            pod::fill(spec);
            pod::fill_requests(spec);
            spec.entry("enableServiceLinks").or_insert(Value::Bool(true));
        }
        "Deployment" => deployment(object::map_mut(map, "spec")),
        "DaemonSet" => daemon_set(object::map_mut(map, "spec")),
        "ReplicaSet" => {
            let spec = object::map_mut(map, "spec");
            template(spec);
            put(spec, "replicas", json!(1));
        }
        "Job" => {
            let spec = object::map_mut(map, "spec");
            template(spec);
            batch::fill(spec);
            batch::inherit_labels(new);
        }
        "Service" => service::fill(map),
        "Endpoints" => service::fill_endpoints(map),
        "EndpointSlice" => service::fill_slice(map),
        "RoleBinding" | "ClusterRoleBinding" => binding(map),
        "ValidatingAdmissionPolicy" => policy::fill(object::map_mut(map, "spec")),
        "ValidatingAdmissionPolicyBinding" => policy::fill_binding(object::map_mut(map, "spec")),
        "PriorityClass" => put(map, "preemptionPolicy", json!("PreemptLowerPriority")),
        _ => {}
    }
}

/// Fills in the API groups of a role binding.
fn binding(map: &mut Map<String, Value>) {
    put(object::map_mut(map, "roleRef"), "apiGroup", json!(RBAC));
    let subjects = map.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten().filter_map(Value::as_object_mut) {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            put(subject, "apiGroup", json!(RBAC));
        }
    }
}

/// Makes a field the first item of a list, or its field `inner`. Where they differ, the field counts.
fn pair(map: &mut Map<String, Value>, field: &str, list: &str, inner: Option<&str>) {
    let first = map.get(list).and_then(|list| list.get(0));
    let first = first.and_then(|item| inner.map_or(Some(item), |inner| item.get(inner)));
    let first = first.and_then(Value::as_str).unwrap_or("");
    match map.get(field).and_then(Value::as_str).unwrap_or("") {
        "" if !first.is_empty() => drop(map.insert(field.to_owned(), first.into())),
        given if given != first => {
            let item = inner.map_or_else(|| json!(given), |inner| json!({inner: given}));
            map.insert(list.to_owned(), json!([item]));
        }
        _ => {}
    }
}

fn secret(map: &mut Map<String, Value>) {
    map.entry("type").or_insert_with(|| "Opaque".into());
    if let Some(Value::Object(texts)) = map.remove("stringData") {
        let data = object::map_mut(map, "data");
        for (key, text) in texts {
            if let Some(text) = text.as_str() {
                data.insert(key, STANDARD.encode(text).into());
            }
        }
    }
}

fn template(spec: &mut Map<String, Value>) {
    pod::fill(object::map_mut(object::map_mut(spec, "template"), "spec"));
}

fn deployment(spec: &mut Map<String, Value>) {
    template(spec);
    put(spec, "replicas", json!(1));
    put(spec, "revisionHistoryLimit", json!(10));
    put(spec, "progressDeadlineSeconds", json!(600));
    let strategy = object::map_mut(spec, "strategy");
    put(strategy, "type", json!("RollingUpdate"));
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = object::map_mut(strategy, "rollingUpdate");
        put(rolling, "maxUnavailable", json!("25%"));
        put(rolling, "maxSurge", json!("25%"));
    }
}

fn daemon_set(spec: &mut Map<String, Value>) {
    template(spec);
    put(spec, "revisionHistoryLimit", json!(10));
    let strategy = object::map_mut(spec, "updateStrategy");
    put(strategy, "type", json!("RollingUpdate"));
    if strategy.get("type") == Some(&json!("RollingUpdate")) {
        let rolling = object::map_mut(strategy, "rollingUpdate");
        put(rolling, "maxUnavailable", json!(1));
        put(rolling, "maxSurge", json!(0));
    }
}

/// Fills in what admission adds to a changed object.
pub(crate) fn changed_object(resource: &Resource, old: &Value, new: &mut Value) {
    match resource.kind.as_str() {
        "DaemonSet" if !resource.custom => count_template(old, new),
        "Pod" if !resource.custom => {
            pod::tolerate(object::map_mut(object::map_of(new), "spec"));
        }
        "Service" if !resource.custom => service::keep_allocated(old, new),
        // Compat: a certificate request changes only by its subresources.
        "CertificateSigningRequest" if !resource.custom => {
            let spec = old.get("spec").cloned().unwrap_or_default();
            object::map_of(new).insert("spec".into(), spec);
        }
        _ => {}
    }
}

/// Keeps the number of changes of a DaemonSet's template in its annotation.
pub(crate) fn keep_count(resource: &Resource, old: &Value, new: &mut Value) {
    let count = object::at(old, &["metadata", "annotations", TEMPLATE_GENERATION]);
    if let Some(count) = count.filter(|_| resource.kind == "DaemonSet" && !resource.custom) {
        object::map_mut(object::meta_mut(new), "annotations")
            .entry(TEMPLATE_GENERATION)
            .or_insert_with(|| count.clone());
    }
}

/// Keeps the class of service of a pod, which a kubelet may leave out.
pub(super) fn keep_class(resource: &Resource, old: &Value, new: &mut Value) {
    const FIELD: &str = "qosClass";
    if resource.custom || resource.kind != "Pod" {
        return;
    }
    if let Some(class) = object::at(old, &["status", FIELD]) {
        put(object::map_mut(object::map_of(new), "status"), FIELD, class.clone());
    }
}

/// Sets the times of the conditions of a certificate request, which clients may leave out.
pub(super) fn stamp_conditions(resource: &Resource, old: &Value, new: &mut Value, now: Timestamp) {
    if resource.custom || resource.kind != "CertificateSigningRequest" {
        return;
    }
    let now = clock::rfc3339(now);
    let before = object::at(old, &["status", "conditions"]).and_then(Value::as_array).cloned();
    let before = before.unwrap_or_default();
    let list = new.get_mut("status").and_then(|status| status.get_mut("conditions"));
    let list = list.and_then(Value::as_array_mut);
    for one in list.into_iter().flatten().filter_map(Value::as_object_mut) {
        put(one, "lastUpdateTime", json!(now));
        let same =
            |it: &&Value| ["type", "status"].iter().all(|field| it.get(field) == one.get(*field));
        let since = before.iter().find(same).and_then(|it| it.get("lastTransitionTime"));
        let since = since.cloned().unwrap_or_else(|| json!(now));
        put(one, "lastTransitionTime", since);
    }
}

/// Counts a change of a DaemonSet's template in its annotation.
fn count_template(old: &Value, new: &mut Value) {
    let template = |value: &Value| object::at(value, &["spec", "template"]).cloned();
    let annotation = ["metadata", "annotations", TEMPLATE_GENERATION];
    let mut count: u64 = object::text(old, &annotation).parse().unwrap_or(1);
    if template(old) != template(new) {
        count += 1;
    }
    object::map_mut(object::meta_mut(new), "annotations")
        .insert(TEMPLATE_GENERATION.into(), count.to_string().into());
}

/// Sets a field that is absent or empty.
fn put(map: &mut Map<String, Value>, key: &str, value: Value) {
    let is_empty = map.get(key).is_none_or(|have| have.is_null() || *have == json!(""));
    if is_empty {
        map.insert(key.to_owned(), value);
    }
}
