//! The base configs, `00-<role>`: what every machine of a role has before anybody asks for more.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, ResourceExt as _};
use mco_api::{
    ControllerConfig, GROUP, MachineConfig, MachineConfigSpec, RawConfig, VERSION, annotation,
    label,
};
use mco_cluster::{
    CallError,
    apply::{self, Guard},
};
use mco_core::render::Build;
use serde_json::json;
use tracing::info;

use crate::Context;

/// Where a machine says what it is part of.
const RELEASE_FILE: &str = "/etc/mco/release";

/// Whether a config of that name is one of ours.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("00-")
}

/// Makes the base config of `role`, or puts it back to what it should be.
pub(crate) async fn apply(
    context: &Context,
    role: &str,
    owner: &ControllerConfig,
) -> Result<(), CallError> {
    let (release, build) = (&context.config.release, &context.config.build);
    let wanted = base_config(role, release, build, owner);
    let name = wanted.name_any();
    let api = Api::<MachineConfig>::all(context.client.clone());
    let Some(found) = context.configs.get(&name) else {
        context.configs.learn_new(apply::ensure(&api, &name, &wanted).await?);
        info!(config = name, "Made a base config");
        return Ok(());
    };
    let holds = |mine: &std::collections::BTreeMap<String, String>,
                 theirs: &std::collections::BTreeMap<String, String>| {
        mine.iter().all(|(key, value)| theirs.get(key) == Some(value))
    };
    let same = same_config(&found.spec, &wanted.spec)
        && holds(wanted.annotations(), found.annotations())
        && holds(wanted.labels(), found.labels());
    if !same {
        let patch = json!({
            "metadata": {"annotations": wanted.annotations(), "labels": wanted.labels()},
            "spec": {"config": wanted.spec.config},
        });
        context.configs.learn(apply::merge(&api, &name, patch, Guard::Any).await?);
        info!(config = name, "Put a base config back");
    }
    Ok(())
}

/// Whether both say the same, whatever the order of their members.
fn same_config(left: &MachineConfigSpec, right: &MachineConfigSpec) -> bool {
    let value = |spec: &MachineConfigSpec| {
        let text = spec.config.as_ref().map(RawConfig::get)?;
        serde_json::from_str::<serde_json::Value>(text).ok()
    };
    value(left) == value(right)
}

/// The base config of `role` in a cluster of that release, made by that build.
#[must_use]
pub fn base_config(
    role: &str,
    release: &str,
    build: &Build,
    owner: &ControllerConfig,
) -> MachineConfig {
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [{
            "path": RELEASE_FILE,
            "mode": 0o644,
            "overwrite": true,
            "contents": {"source": format!("data:,release%3D{release}%0Arole%3D{role}%0A")},
        }]},
    });
    let text = ignition.to_string();
    let spec = MachineConfigSpec {
        config: Some(RawConfig::from_json(text).expect("what was written as JSON is JSON")),
        ..MachineConfigSpec::default()
    };
    let mut config = MachineConfig::new(&format!("00-{role}"), spec);
    config.metadata.labels = Some([(label::ROLE.to_owned(), role.to_owned())].into());
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::GENERATED_BY_CONTROLLER_VERSION.set(annotations, &build.hash);
    config.metadata.owner_references = Some(vec![OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "ControllerConfig".to_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    config
}
