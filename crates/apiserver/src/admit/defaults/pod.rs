//! Defaults of pods and pod templates, and what admission adds to a new pod.

use serde_json::{Map, Value, json};

use super::put;
use crate::{admit::SYSTEM_PRIORITIES, object};

/// Mode of the files in volumes of Secrets and ConfigMaps: 0644.
const FILE_MODE: i64 = 0o644;

/// Seconds that a pod stays on a node that is not ready or not reachable.
const TOLERATION_SECONDS: i64 = 300;

/// Fills in the defaults of a pod's spec.
pub(super) fn fill(spec: &mut Map<String, Value>) {
    put(spec, "restartPolicy", json!("Always"));
    put(spec, "terminationGracePeriodSeconds", json!(30));
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|it| it < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), json!(1));
    }
    put(spec, "dnsPolicy", json!("ClusterFirst"));
    put(spec, "securityContext", json!({}));
    put(spec, "schedulerName", json!("default-scheduler"));
    // The old name of the field follows the new one.
    match (spec.get("serviceAccountName").cloned(), spec.get("serviceAccount").cloned()) {
        (Some(account), _) => drop(spec.insert("serviceAccount".into(), account)),
        (None, Some(account)) => drop(spec.insert("serviceAccountName".into(), account)),
        (None, None) => {}
    }
    let has_host_network = spec.get("hostNetwork") == Some(&json!(true));
    for volume in items(spec, "volumes") {
        fill_volume(volume);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(spec, list) {
            fill_container(container, has_host_network);
        }
    }
}

fn items<'a>(
    map: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = map.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn fill_container(container: &mut Map<String, Value>, has_host_network: bool) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or("");
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    put(container, "imagePullPolicy", json!(policy));
    put(container, "terminationMessagePath", json!("/dev/termination-log"));
    put(container, "terminationMessagePolicy", json!("File"));
    for port in items(container, "ports") {
        put(port, "protocol", json!("TCP"));
        let number = port.get("containerPort").cloned().unwrap_or_else(|| json!(0));
        if has_host_network && number != json!(0) {
            put(port, "hostPort", number);
        }
    }
    for variable in items(container, "env") {
        let source = variable.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef"));
        if let Some(Value::Object(source)) = source {
            put(source, "apiVersion", json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(probe)) = container.get_mut(probe) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                put(probe, field, json!(value));
            }
            fill_action(probe);
        }
    }
    if let Some(Value::Object(lifecycle)) = container.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(Value::Object(hook)) = lifecycle.get_mut(hook) {
                fill_action(hook);
            }
        }
    }
}

fn fill_action(action: &mut Map<String, Value>) {
    if let Some(Value::Object(get)) = action.get_mut("httpGet") {
        put(get, "path", json!("/"));
        put(get, "scheme", json!("HTTP"));
    }
    if let Some(Value::Object(call)) = action.get_mut("grpc") {
        put(call, "service", json!(""));
    }
}

/// Returns true if the image has no tag and no digest, or the tag `latest`.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn fill_volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = volume.get_mut(source) {
            put(source, "defaultMode", json!(FILE_MODE));
            fill_projection(source);
        }
    }
    if let Some(Value::Object(path)) = volume.get_mut("hostPath") {
        path.entry("type").or_insert_with(|| json!(""));
    }
}

fn fill_projection(source: &mut Map<String, Value>) {
    for file in items(source, "items") {
        if let Some(Value::Object(field)) = file.get_mut("fieldRef") {
            put(field, "apiVersion", json!("v1"));
        }
    }
    for part in items(source, "sources") {
        if let Some(Value::Object(token)) = part.get_mut("serviceAccountToken") {
            put(token, "expirationSeconds", json!(3600));
        }
        if let Some(Value::Object(fields)) = part.get_mut("downwardAPI") {
            fill_projection(fields);
        }
    }
}

/// Sets the requests of containers that have only limits.
pub(super) fn fill_requests(spec: &mut Map<String, Value>) {
    for list in ["initContainers", "containers"] {
        for container in items(spec, list) {
            let Some(Value::Object(resources)) = container.get_mut("resources") else { continue };
            let Some(Value::Object(limits)) = resources.get("limits").cloned() else { continue };
            let requests = object::map_mut(resources, "requests");
            for (name, amount) in limits {
                requests.entry(name).or_insert(amount);
            }
        }
    }
}

/// Adds what admission adds to a new pod: the account, the priority and tolerations.
pub(super) fn admit(spec: &mut Map<String, Value>) {
    put(spec, "serviceAccountName", json!("default"));
    let account = spec.get("serviceAccountName").cloned().unwrap_or_default();
    spec.insert("serviceAccount".into(), account);
    let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or("");
    let priority =
        SYSTEM_PRIORITIES.iter().find(|(name, _)| *name == class).map_or(0, |(_, value)| *value);
    put(spec, "priority", json!(priority));
    put(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    tolerate(spec);
}

/// Adds the tolerations of nodes that are not ready or not reachable.
pub(super) fn tolerate(spec: &mut Map<String, Value>) {
    let list = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = |one: &Value| {
            let of = |field| object::text(one, &[field]);
            (of("key") == key || (of("key").is_empty() && of("operator") == "Exists"))
                && matches!(of("effect"), "" | "NoExecute")
        };
        if !list.iter().any(tolerates) {
            list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": TOLERATION_SECONDS}));
        }
    }
}

/// Returns the quality of service class of a pod.
pub(super) fn quality_of_service(spec: &Value) -> &'static str {
    let containers = ["initContainers", "containers"].into_iter();
    let containers = containers.filter_map(|list| spec.get(list)?.as_array()).flatten();
    let (mut has_any, mut is_guaranteed) = (false, true);
    for container in containers {
        let amount = |kind: &str, name: &str| object::at(container, &["resources", kind, name]);
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount("requests", name), amount("limits", name));
            has_any |= request.or(limit).is_some();
            is_guaranteed &=
                limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (has_any, is_guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_tag_are_always_pulled() {
        for (image, expected) in [
            ("i", true),
            ("host:5000/i", true),
            ("host:5000/i:1", false),
            ("i:latest", true),
            ("i@sha256:aa", false),
        ] {
            assert_eq!(is_latest(image), expected, "{image}");
        }
    }

    #[test]
    fn the_class_of_a_pod_depends_on_its_resources() {
        for (resources, expected) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        ] {
            let spec = json!({"containers": [{"resources": resources}]});
            assert_eq!(quality_of_service(&spec), expected, "{spec}");
        }
    }
}
