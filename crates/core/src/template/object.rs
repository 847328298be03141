//! The object of a base config: its metadata, and the owner of one that the cluster has.

use mco_api::{
    MachineConfig, MachineConfigSpec,
    annotation::{self, BaseConfig},
    name::RENDERED_PREFIX,
};
use serde_json::{Map, Value, json};

use super::{Facts, empty};
use crate::generated;

const OWNER: &str = "ControllerConfig";

/// Builds the object of a base config.
pub(super) fn base_config(
    name: &str,
    role: &str,
    spec: MachineConfigSpec,
    facts: &Facts<'_>,
) -> MachineConfig {
    let owner = generated::controller_reference(facts.controller_config);
    let mut config = generated::machine_config(name, role, spec, facts.build, Some(owner));
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::BASE_CONFIG.set(annotations, &BaseConfig::Generated);
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
    use crate::{kubelet::tls_settings, render::Build};

    fn edited(edit: impl FnOnce(&mut Value)) -> MachineConfig {
        let build = Build { version: "v1".to_owned(), hash: "abc".to_owned() };
        let (controller_config, tls) = (ControllerConfig::default(), tls_settings(None));
        let facts = Facts {
            controller_config: &controller_config,
            pull_secret: None,
            tls: &tls,
            build: &build,
        };
        let wanted = base_config("00-worker", "worker", empty(), &facts);
        let mut found = json!(wanted);
        edit(&mut found);
        serde_json::from_value(found).unwrap()
    }

    #[test]
    fn base_configs_of_others_are_kept() {
        let mark = annotation::BASE_CONFIG.name();
        let without_mark = |object: &mut Value| {
            object["metadata"]["annotations"].as_object_mut().unwrap().remove(mark);
        };
        let argument = |object: &mut Value| object["spec"]["kernelArguments"] = json!(["a"]);
        let owner = |edit: &dyn Fn(&mut Value)| ownership(&edited(|object| edit(object)));
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
        let patch = |edit: &dyn Fn(&mut Value)| without_images(&edited(|object| edit(object)));
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
