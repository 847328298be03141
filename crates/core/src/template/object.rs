//! The object of a base config: its metadata, its owner, and the difference to what the cluster has.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::{
    GROUP, MachineConfig, MachineConfigSpec, VERSION,
    annotation::{self, BaseConfig},
    label,
    name::RENDERED_PREFIX,
};
use serde_json::{Map, Value, json};

use super::{Facts, empty};

const OWNER: &str = "ControllerConfig";

/// Builds the object of a base config.
pub(super) fn base_config(
    name: &str,
    role: &str,
    spec: MachineConfigSpec,
    facts: &Facts<'_>,
) -> MachineConfig {
    let mut config = MachineConfig::new(name, spec);
    config.metadata.labels = Some([(label::ROLE.to_owned(), role.to_owned())].into());
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::GENERATED_BY_CONTROLLER_VERSION.set(annotations, &facts.build.hash);
    annotation::BASE_CONFIG.set(annotations, &BaseConfig::Generated);
    let owner = &facts.controller_config.metadata;
    config.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: OWNER.to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    config
}

/// Owner of a MachineConfig that has the name of a base config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// This controller, which may replace the contents.
    Generated,
    /// Another operator or the user: the object stays as it is, byte for byte.
    Kept,
}

/// Returns the owner of a MachineConfig that has the name of a base config.
///
/// The annotation `base-config` decides. Builds before the annotation generated the same contents as
/// profile `adopt`; all other contents without it were made by others.
#[must_use]
pub fn ownership(found: &MachineConfig) -> Ownership {
    let annotations = found.metadata.annotations.clone().unwrap_or_default();
    match annotations.get(annotation::BASE_CONFIG.name()).map(|word| BaseConfig::from(&**word)) {
        Some(BaseConfig::Generated) => Ownership::Generated,
        Some(BaseConfig::Kept | BaseConfig::Other(_)) => Ownership::Kept,
        None => {
            let is_same = json!(found.spec) == json!(empty());
            let is_marked = annotation::GENERATED_BY_CONTROLLER_VERSION.is_present(&annotations);
            let is_ours = is_same && is_marked && is_owned(found);
            if is_ours { Ownership::Generated } else { Ownership::Kept }
        }
    }
}

/// Returns true if the MachineConfig is owned by the ControllerConfig, as base configs are.
fn is_owned(config: &MachineConfig) -> bool {
    let owners = config.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.kind == OWNER && owner.controller == Some(true))
}

/// Returns true if the MachineConfig is a base config that this controller did not generate.
#[must_use]
pub(crate) fn is_kept(config: &MachineConfig) -> bool {
    let annotations = config.metadata.annotations.clone().unwrap_or_default();
    let mark =
        annotations.get(annotation::BASE_CONFIG.name()).map(|word| BaseConfig::from(&**word));
    is_owned(config) && mark != Some(BaseConfig::Generated)
}

/// Returns the merge patch that restores the spec, the labels, the annotations and the owner of a
/// generated MachineConfig; `None` if nothing differs. Labels and annotations of others stay.
#[must_use]
pub fn difference(found: &MachineConfig, wanted: &MachineConfig) -> Option<Value> {
    let mut metadata = Map::new();
    let none = BTreeMap::new();
    let (ours, theirs) = (&wanted.metadata, &found.metadata);
    for (member, found, wanted) in [
        ("annotations", &theirs.annotations, &ours.annotations),
        ("labels", &theirs.labels, &ours.labels),
    ] {
        let (found, wanted) = (found.as_ref().unwrap_or(&none), wanted.as_ref().unwrap_or(&none));
        let differs = |(key, value): &(&String, &String)| found.get(*key) != Some(*value);
        let changed: BTreeMap<_, _> = wanted.iter().filter(differs).collect();
        if !changed.is_empty() {
            metadata.insert(member.to_owned(), json!(changed));
        }
    }
    if theirs.owner_references != ours.owner_references {
        metadata.insert("ownerReferences".to_owned(), json!(ours.owner_references));
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
fn merge_patch(found: &Value, wanted: &Value) -> Option<Value> {
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

/// Returns the merge patch that clears the images of a generated MachineConfig, which old releases
/// set there; `None` if there are none, or if the MachineConfig is not to be changed.
#[must_use]
pub fn without_images(config: &MachineConfig) -> Option<Value> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let annotations = config.metadata.annotations.as_ref()?;
    let is_generated = annotation::GENERATED_BY_CONTROLLER_VERSION.is_present(annotations);
    if !is_generated || name.starts_with(RENDERED_PREFIX) || is_kept(config) {
        return None;
    }
    let images = [
        ("osImageURL", &config.spec.os_image_url),
        ("baseOSExtensionsContainerImage", &config.spec.base_os_extensions_container_image),
    ];
    let set = images.into_iter().filter(|(_, image)| !image.is_empty());
    let cleared: Map<_, _> = set.map(|(member, _)| (member.to_owned(), json!(""))).collect();
    (!cleared.is_empty()).then(|| json!({"spec": cleared}))
}

#[cfg(test)]
mod tests {
    use mco_api::ControllerConfig;

    use super::*;
    use crate::{render::Build, template::TlsSettings};

    fn edited(edit: impl FnOnce(&mut Value)) -> (MachineConfig, MachineConfig) {
        let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
        let (controller_config, tls) = (ControllerConfig::default(), TlsSettings::default());
        let facts = Facts {
            controller_config: &controller_config,
            pull_secret: None,
            tls: &tls,
            build: &build,
        };
        let wanted = base_config("00-worker", "worker", empty(), &facts);
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

    // covers: TPL-10
    #[test]
    fn an_edited_base_config_is_restored_and_labels_of_others_stay() {
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

    #[test]
    fn base_configs_of_others_are_kept() {
        let mark = annotation::BASE_CONFIG.name();
        let without_mark = |object: &mut Value| {
            object["metadata"]["annotations"].as_object_mut().unwrap().remove(mark);
        };
        let argument = |object: &mut Value| object["spec"]["kernelArguments"] = json!(["a"]);
        let owner = |edit: &dyn Fn(&mut Value)| ownership(&edited(|object| edit(object)).0);
        assert_eq!(owner(&|_| {}), Ownership::Generated);
        assert_eq!(owner(&argument), Ownership::Generated);
        assert_eq!(owner(&without_mark), Ownership::Generated, "an earlier build made it");
        let other = |object: &mut Value| {
            without_mark(object);
            argument(object);
        };
        assert_eq!(owner(&other), Ownership::Kept);
        let users = |object: &mut Value| {
            without_mark(object);
            object["metadata"]["ownerReferences"] = Value::Null;
        };
        assert_eq!(owner(&users), Ownership::Kept);
        let chosen = |object: &mut Value| object["metadata"]["annotations"][mark] = json!("kept");
        assert_eq!(owner(&chosen), Ownership::Kept);
    }

    // covers: TPL-13
    #[test]
    fn images_of_old_releases_are_cleared_in_generated_configs_only() {
        let image = |object: &mut Value| object["spec"]["osImageURL"] = json!("registry/os");
        let both = |object: &mut Value| {
            image(object);
            object["spec"]["baseOSExtensionsContainerImage"] = json!("registry/extensions");
        };
        let patch = |edit: &dyn Fn(&mut Value)| without_images(&edited(|object| edit(object)).0);
        assert_eq!(patch(&|_| {}), None);
        assert_eq!(patch(&image), Some(json!({"spec": {"osImageURL": ""}})));
        let cleared = json!({"osImageURL": "", "baseOSExtensionsContainerImage": ""});
        assert_eq!(patch(&both), Some(json!({"spec": cleared})));
        let users = |object: &mut Value| {
            image(object);
            object["metadata"]["annotations"] = json!({});
        };
        assert_eq!(patch(&users), None);
        let rendered = |object: &mut Value| {
            image(object);
            object["metadata"]["name"] = json!("rendered-worker-1");
        };
        assert_eq!(patch(&rendered), None);
        let kept = |object: &mut Value| {
            image(object);
            object["metadata"]["annotations"][annotation::BASE_CONFIG.name()] = json!("kept");
        };
        assert_eq!(patch(&kept), None);
    }
}
