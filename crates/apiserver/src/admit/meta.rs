//! Validation of the metadata that all kinds share.

use serde_json::{Value, json};

use super::name;
use crate::{failure::Fault, object, resource::Resource};

/// Maximum size of all annotations of an object.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Validates generation, labels, annotations, owners and finalizers.
pub(super) fn check(resource: &Resource, object: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(generation(resource, object));
    for (key, value) in entries(object, "labels") {
        if Fault::are_enough(&faults) {
            break;
        }
        for rule in name::qualified_faults(key) {
            faults.push(Fault::invalid("metadata.labels", &json!(key), &rule));
        }
        for rule in name::label_value_faults(value.as_str().unwrap_or("")) {
            faults.push(Fault::invalid("metadata.labels", value, &rule));
        }
    }
    faults.extend(annotations(object, "metadata.annotations"));
    faults.extend(owners(object));
    faults.extend(finalizers(resource, object));
    faults
}

/// Validates a generation that the client chooses, because the server does not count that of the kind.
fn generation(resource: &Resource, object: &Value) -> Option<Fault> {
    let given = object::at(object, &["metadata", "generation"]).filter(|_| !resource.generation)?;
    let rule = "must be greater than or equal to 0";
    let is_negative = given.as_i64().is_some_and(|number| number < 0);
    is_negative.then(|| Fault::invalid("metadata.generation", given, rule))
}

/// Validates the annotations of an object or of a template.
pub(super) fn annotations(object: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut size = 0;
    for (key, value) in entries(object, "annotations") {
        size += key.len() + value.as_str().map_or(0, str::len);
        if Fault::are_enough(&faults) {
            continue;
        }
        for rule in name::qualified_faults(&key.to_ascii_lowercase()) {
            faults.push(Fault::invalid(place, &json!(key), &rule));
        }
    }
    if size > MAX_ANNOTATIONS {
        faults.push(Fault::too_long(place, MAX_ANNOTATIONS));
    }
    faults
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object::at(object, &["metadata", field]).and_then(Value::as_object).into_iter().flatten()
}

fn owners(object: &Value) -> Vec<Fault> {
    const PLACE: &str = "metadata.ownerReferences";
    let mut faults = Vec::new();
    let mut controller = String::new();
    let list = object::at(object, &["metadata", "ownerReferences"]);
    let references = list.and_then(Value::as_array).into_iter().flatten();
    for reference in references {
        if Fault::are_enough(&faults) {
            break;
        }
        let of = |field| object::text(reference, &[field]);
        let version = of("apiVersion");
        // Compat: a version with two slashes has no parts at all.
        let parts = version.split('/').count();
        let is_named = parts <= 2 && !version.rsplit('/').next().unwrap_or("").is_empty();
        if !is_named {
            let place = format!("{PLACE}.apiVersion");
            faults.push(Fault::invalid(place, &json!(version), "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if of(field).is_empty() {
                let place = format!("{PLACE}.{field}");
                faults.push(Fault::invalid(place, &json!(""), "must not be empty"));
            }
        }
        if of("kind") == "Event" && version == "v1" {
            let rule = "/v1, Kind=Event is disallowed from being an owner";
            faults.push(Fault::invalid(PLACE, reference, rule));
        }
        if reference.get("controller") == Some(&json!(true)) {
            let name = format!("{}/{}", of("kind"), of("name"));
            if controller.is_empty() {
                controller = name;
            } else {
                let rule = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in \
                     references for {controller} and {name}"
                );
                faults.push(Fault::invalid(PLACE, list.unwrap_or(&Value::Null), &rule));
            }
        }
    }
    faults
}

fn finalizers(resource: &Resource, object: &Value) -> Vec<Fault> {
    const PLACE: &str = "metadata.finalizers";
    let mut faults = Vec::new();
    for (at, finalizer) in object::finalizers(object).enumerate() {
        if Fault::are_enough(&faults) {
            break;
        }
        let rules = name::qualified_faults(finalizer);
        let needs_prefix =
            needs_prefix(resource) && !finalizer.contains('/') && !is_standard(finalizer);
        if rules.is_empty() && needs_prefix {
            let rule = "name is neither a standard finalizer name nor is it fully qualified";
            faults.push(Fault::invalid(format!("{PLACE}[{at}]"), &json!(finalizer), rule));
        }
        for rule in rules {
            faults.push(Fault::invalid(PLACE, &json!(finalizer), &rule));
        }
    }
    let has = |name: &str| object::finalizers(object).any(|one| one == name);
    if has("orphan") && has("foregroundDeletion") {
        let all: Vec<&str> = object::finalizers(object).collect();
        let rule = "finalizer orphan and foregroundDeletion cannot be both set";
        faults.push(Fault::invalid(PLACE, &json!(all), rule));
    }
    faults
}

/// Returns true if the finalizers of a resource need a prefix.
fn needs_prefix(resource: &Resource) -> bool {
    // Compat: kube-apiserver checks it for the older kinds only.
    const WITHOUT: [&str; 4] =
        ["admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "policy"];
    !resource.custom && !WITHOUT.contains(&resource.group.as_str())
}

/// Returns true for the finalizers of Kubernetes itself, which need no prefix.
fn is_standard(finalizer: &str) -> bool {
    matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_metadata_is_validated() {
        let configmaps = crate::resource::builtin::by_plural("configmaps");
        for (metadata, expected) in [
            (
                json!({"generation": -1}),
                "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            ),
            (json!({"labels": {"a b": "c"}}), "metadata.labels: Invalid value: \"a b\": name part"),
            (json!({"labels": {"a": "b c"}}), "metadata.labels: Invalid value: \"b c\": a valid"),
            (json!({"annotations": {"a b": ""}}), "metadata.annotations: Invalid value: \"a b\""),
            (json!({"finalizers": ["a b"]}), "metadata.finalizers: Invalid value: \"a b\""),
            (
                json!({"ownerReferences": [{"kind": "Node", "name": "n", "uid": "u"}]}),
                "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must",
            ),
        ] {
            let faults = check(&configmaps, &json!({"metadata": metadata}));
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            assert!(texts.len() == 1 && texts[0].starts_with(expected), "{metadata}: {texts:?}");
        }
        let fine = json!({"labels": {"a.b/c": "d"}, "annotations": {"A.B/C": "any text"},
            "finalizers": ["a.b/c", "orphan"]});
        assert!(check(&configmaps, &json!({"metadata": fine})).is_empty());
    }

    #[test]
    fn the_errors_of_many_owners_are_limited() {
        let configmaps = crate::resource::builtin::by_plural("configmaps");
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u",
            "controller": true});
        let object = json!({"metadata": {"ownerReferences": vec![owner; 10_000]}});
        let size: usize = check(&configmaps, &object).iter().map(|it| it.message.len()).sum();
        assert!(size < 3 << 20, "{size}");
        let labels: serde_json::Map<String, Value> =
            (0..10_000).map(|number| (format!("a b{number}"), json!("c d"))).collect();
        assert!(check(&configmaps, &json!({"metadata": {"labels": labels}})).len() < 110);
    }

    #[test]
    fn finalizers_of_built_in_kinds_have_a_prefix() {
        let object = json!({"metadata": {"finalizers": ["99-worker-generated-kubelet"]}});
        let mut resource = crate::resource::builtin::by_plural("configmaps");
        assert_eq!(check(&resource, &object).len(), 1);
        resource.custom = true;
        assert!(check(&resource, &object).is_empty());
    }
}
