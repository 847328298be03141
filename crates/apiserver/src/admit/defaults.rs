//! Defaults and initial status that the server fills into objects of the built-in kinds.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{object, resource::Resource};

/// Fills in the initial status and the defaults of a new object.
pub(crate) fn new_object(resource: &Resource, new: &mut Value, _now: Timestamp) {
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
            let name = object::name(new).to_owned();
            let labels = object::map_mut(object::meta_mut(new), "labels");
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
        "Pod" => {
            map.insert("status".into(), json!({"phase": "Pending"}));
        }
        "Deployment" | "DaemonSet" | "PodDisruptionBudget" => {
            map.insert("status".into(), json!({}));
        }
        _ => {}
    }
    changed_object(resource, new);
}

/// Fills in the defaults of an object after any write.
pub(crate) fn changed_object(resource: &Resource, new: &mut Value) {
    if resource.custom {
        return;
    }
    let map = object::map_of(new);
    match resource.kind.as_str() {
        "Secret" => {
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
        "Pod" => pod_spec(object::map_mut(map, "spec")),
        "Deployment" => {
            let spec = object::map_mut(map, "spec");
            spec.entry("replicas").or_insert_with(|| 1.into());
            pod_spec(object::map_mut(object::map_mut(spec, "template"), "spec"));
        }
        "DaemonSet" => {
            let spec = object::map_mut(map, "spec");
            pod_spec(object::map_mut(object::map_mut(spec, "template"), "spec"));
        }
        "Node" => {
            object::map_mut(map, "spec");
        }
        _ => {}
    }
}

fn pod_spec(spec: &mut serde_json::Map<String, Value>) {
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
    ] {
        spec.entry(key).or_insert(value);
    }
}
