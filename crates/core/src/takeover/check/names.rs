//! The MachineConfigs that the controller would generate, and the names of the rendered configs.

use std::collections::BTreeMap;

use kube_core::ResourceExt as _;
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, annotation};

use super::{Effect, Findings, Snapshot};
use crate::{
    container_runtime::Engines,
    generated::{self, SettingsSources, difference, from_settings},
    image_config::EmptyConfig,
    lint::chain,
    render::{self, BaseImages, Build, Selection},
};

/// Checks the generated MachineConfigs and the rendered config of each pool.
pub(super) fn check(
    snapshot: &Snapshot,
    controller_config: &ControllerConfig,
    build: &Build,
    findings: &mut Findings,
) {
    let generated = generate(snapshot, controller_config, build, findings);
    let mut inputs: BTreeMap<String, &MachineConfig> =
        snapshot.configs.iter().map(|config| (config.name_any(), config)).collect();
    inputs.extend(generated.iter().map(|config| (config.name_any(), config)));
    let inputs: Vec<&MachineConfig> = inputs.into_values().collect();
    for pool in &snapshot.pools {
        let object = format!("MachineConfigPool/{}", pool.name_any());
        let target = &pool.spec.configuration.rendered.name;
        match rendered_name(snapshot, controller_config, pool, &inputs, build) {
            Ok(Some(name)) if name == *target => {
                findings.add(Effect::Keeps, object, format!("renders to {name}, as it is now"));
            }
            Ok(Some(name)) => {
                let text = format!(
                    "renders to {name}, and the cluster has {target}: all its nodes would be updated"
                );
                findings.add(Effect::Forbids, object, text);
                findings.fix(format!(
                    "find the difference: save {target} and the output of `kubectl get \
                     mc,mcp,controllerconfig -o yaml | mco render -f - --pool {} -o yaml`, and run \
                     `mco diff` on both",
                    pool.name_any()
                ));
            }
            Ok(None) => {
                let text = "its configs have contents with a URL, and the controller embeds them: the \
                            rendered config may get another name, and all nodes would be updated";
                findings.add(Effect::Forbids, object, text);
                findings.fix("replace the URLs in the MachineConfigs by the contents");
            }
            Err(error) => {
                findings.add(Effect::Forbids, object, format!("cannot be rendered: {error}"));
            }
        }
    }
}

/// Returns the name of the rendered config of a pool; `None` if remote contents are part of it.
fn rendered_name(
    snapshot: &Snapshot,
    controller_config: &ControllerConfig,
    pool: &MachineConfigPool,
    configs: &[&MachineConfig],
    build: &Build,
) -> Result<Option<String>, String> {
    let selected = render::select(pool, configs.iter().copied());
    let selected = match selected.map_err(|error| chain(&error))? {
        Selection::Configs(configs) => configs,
        Selection::Everything => return Err("its selector selects all MachineConfigs".to_owned()),
    };
    let images = match snapshot.streams.as_ref().filter(|streams| streams.status.is_some()) {
        Some(streams) => {
            let worker = snapshot.pools.iter().find(|pool| pool.name_any() == "worker");
            let stream = render::stream_of(pool, worker, streams, build);
            BaseImages::from(stream.map_err(|error| chain(&error))?)
        }
        None => BaseImages {
            os: controller_config.spec.base_os_container_image.clone(),
            extensions: controller_config.spec.base_os_extensions_container_image.clone(),
        },
    };
    let name = pool.name_any().parse().map_err(|error: mco_api::name::NameError| chain(&error))?;
    let draft = render::draft(&name, &selected, &images).map_err(|error| chain(&error))?;
    if !draft.remote().is_empty() {
        return Ok(None);
    }
    let rendered = draft.finish().map_err(|error| chain(&error))?;
    Ok(Some(rendered.name.to_string()))
}

/// Returns the MachineConfigs that the controller would generate from settings, and adds those that
/// differ from the cluster's to the findings.
fn generate(
    snapshot: &Snapshot,
    controller_config: &ControllerConfig,
    build: &Build,
    findings: &mut Findings,
) -> Vec<MachineConfig> {
    let known: BTreeMap<String, &MachineConfig> =
        snapshot.configs.iter().map(|config| (config.name_any(), config)).collect();
    let release = controller_config.annotations().get(annotation::RELEASE_IMAGE_VERSION.name());
    let image = Some(controller_config.spec.release_image.as_str()).filter(|it| !it.is_empty());
    let engines = snapshot.nodes.iter().filter_map(|node| {
        let info = node.status.as_ref()?.node_info.as_ref()?;
        Some(info.container_runtime_version.as_str())
    });
    let found = from_settings(&SettingsSources {
        pools: &snapshot.pools.iter().collect::<Vec<_>>(),
        configs: &snapshot.configs.iter().collect::<Vec<_>>(),
        kubelet_configs: &snapshot.kubelet_configs.iter().collect::<Vec<_>>(),
        runtime_configs: &snapshot.runtime_configs.iter().collect::<Vec<_>>(),
        settings: &snapshot.settings,
        empty: EmptyConfig::Kept,
        engines: Engines::of(engines),
        release_image: image,
        version: release.map(String::as_str).unwrap_or_default(),
        build,
    });
    for (source, text) in found.refused {
        findings.add(Effect::Changes, "MachineConfig", format!("{source} is refused: {text}"));
        findings.fix("correct the settings; until then their MachineConfigs stay as they are");
    }
    let mut generated = Vec::new();
    for (source, wanted) in found.configs {
        let name = wanted.name_any();
        let object = format!("MachineConfig/{name}");
        match known.get(&name) {
            // A MachineConfig without settings is not added to those of another operator.
            None if wanted.spec == generated::spec(&[]) => continue,
            None => {
                findings.add(Effect::Changes, object, format!("is created from {source}"));
            }
            Some(found) => match difference(found, &wanted) {
                Some(patch) => {
                    let members = members(&patch);
                    let text = format!("is generated anew from {source}: {members} differ");
                    findings.add(Effect::Changes, object, text);
                }
                None => {
                    findings.add(Effect::Keeps, object, format!("is the same from {source}"));
                }
            },
        }
        generated.push(wanted);
    }
    generated
}

/// Returns the names of the members that a patch changes.
fn members(patch: &serde_json::Value) -> String {
    let of = |name: &str| {
        let members = patch.get(name).and_then(serde_json::Value::as_object);
        let names = members.into_iter().flat_map(serde_json::Map::keys);
        names.map(|member| format!("{name}.{member}")).collect::<Vec<_>>()
    };
    [of("metadata"), of("spec")].concat().join(", ")
}
