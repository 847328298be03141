//! The difference between a generated MachineConfig and the one in the cluster.

use std::collections::BTreeMap;

use kube_core::ResourceExt as _;
use mco_api::MachineConfig;
use serde_json::{Map, Value, json};

/// Returns the merge patch that restores the spec, the labels, the annotations and the owner of a
/// generated MachineConfig; `None` if nothing differs. Labels and annotations of others stay.
#[must_use]
pub fn difference(found: &MachineConfig, wanted: &MachineConfig) -> Option<Value> {
    let mut metadata = Map::new();
    for (member, found, wanted) in [
        ("annotations", found.annotations(), wanted.annotations()),
        ("labels", found.labels(), wanted.labels()),
    ] {
        let differs = |(key, value): &(&String, &String)| found.get(*key) != Some(*value);
        let changed: BTreeMap<_, _> = wanted.iter().filter(differs).collect();
        if !changed.is_empty() {
            metadata.insert(member.to_owned(), json!(changed));
        }
    }
    if found.owner_references() != wanted.owner_references() {
        metadata.insert("ownerReferences".to_owned(), json!(wanted.owner_references()));
    }
    let mut patch = Map::new();
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    if let Some(spec) = merge_patch(&json!(found.spec), &json!(wanted.spec)) {
        patch.insert("spec".to_owned(), spec);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns the JSON merge patch (RFC 7386) that changes `found` to `wanted`; `None` if they are
/// equal. A wanted null is the same as an absent member.
#[must_use]
pub fn merge_patch(found: &Value, wanted: &Value) -> Option<Value> {
    if found == wanted {
        return None;
    }
    let (Value::Object(found), Value::Object(wanted)) = (found, wanted) else {
        return Some(wanted.clone());
    };
    let removed = found.keys().filter(|key| !wanted.contains_key(*key));
    let removed = removed.map(|key| (key.clone(), Value::Null));
    let changed = wanted.iter().filter_map(|(key, value)| {
        let patch = merge_patch(found.get(key).unwrap_or(&Value::Null), value)?;
        Some((key.clone(), patch))
    });
    let patch: Map<_, _> = removed.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use mco_api::{ControllerConfig, label};

    use super::*;
    use crate::{
        generated::{controller_reference, machine_config, spec},
        render::Build,
    };

    fn edited(edit: impl FnOnce(&mut Value)) -> (MachineConfig, MachineConfig) {
        let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
        let owner = controller_reference(&ControllerConfig::default());
        let wanted = machine_config("00-worker", "worker", spec(&[]), &build, Some(owner));
        let mut found = json!(wanted);
        edit(&mut found);
        (serde_json::from_value(found).unwrap(), wanted)
    }

    /// Applies a merge patch, as RFC 7386 defines it.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return *target = patch.clone() };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            let members = target.as_object_mut().unwrap();
            if value.is_null() {
                members.remove(key);
            } else {
                merge(members.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
    }

    #[test]
    fn an_edited_config_is_restored_and_labels_of_others_stay() {
        let unit = json!([{"name": "a.service", "enabled": true}]);
        let cases = [
            (
                "a unit",
                "/spec/config",
                json!({"ignition": {"version": "3.5.0"}, "systemd": {"units": unit}}),
            ),
            (
                "an Ignition section",
                "/spec/config/ignition",
                json!({"version": "3.4.0", "timeouts": {}}),
            ),
            ("no Ignition config", "/spec/config", Value::Null),
            ("kernel arguments", "/spec/kernelArguments", json!(["debug"])),
            ("extensions", "/spec/extensions", json!(["usbguard"])),
            ("FIPS", "/spec/fips", json!(true)),
            ("a kernel", "/spec/kernelType", json!("realtime")),
            ("an image", "/spec/osImageURL", json!("registry/os")),
            ("a role", "/metadata/labels", json!({label::ROLE: "infra"})),
            ("no annotations", "/metadata/annotations", Value::Null),
            ("no owner", "/metadata/ownerReferences", Value::Null),
        ];
        for (case, place, value) in cases {
            let (found, wanted) = edited(|object| {
                *object.pointer_mut(place).unwrap() = value;
                let labels = object["metadata"]["labels"].as_object_mut().unwrap();
                labels.insert("team".to_owned(), json!("infra"));
            });
            let mut restored = json!(found);
            merge(&mut restored, &difference(&found, &wanted).unwrap_or_else(|| panic!("{case}")));
            let labels = restored["metadata"]["labels"].as_object_mut().unwrap();
            assert_eq!(labels.remove("team"), Some(json!("infra")), "{case}");
            assert_eq!(restored, json!(wanted), "{case}");
        }
    }

    #[test]
    fn additional_labels_and_annotations_are_no_difference() {
        let (found, wanted) = edited(|object| {
            object["metadata"]["labels"]["team"] = json!("infra");
            object["metadata"]["annotations"]["note"] = json!("kept");
        });
        assert_eq!(difference(&found, &wanted), None);
    }
}
