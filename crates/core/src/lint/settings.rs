//! Objects of manifests that the controller generates MachineConfigs from: KubeletConfigs,
//! ContainerRuntimeConfigs, and settings of the cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use mco_api::{ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Fault, FieldPath, Manifest, Object, SpannedValue, chain};
use crate::{
    cluster_settings::{CONFIG_MAP, ClusterSettings},
    container_runtime::Engines,
    generated::{SettingsSource, SettingsSources, from_settings},
    image_config::EmptyConfig,
    render::Build,
};

/// The settings objects of the input.
#[derive(Debug, Default)]
pub(super) struct SettingsObjects {
    kubelet_configs: Vec<Manifest<KubeletConfig>>,
    runtime_configs: Vec<Manifest<ContainerRuntimeConfig>>,
    cluster: ClusterSettings,
    /// An object that has settings of nodes or features, and one that has settings of images.
    node: Option<Object>,
    image: Option<Object>,
    /// Versions of the container engines of the nodes in the input.
    engines: BTreeSet<String>,
    /// Image and version of the release, from the ControllerConfig.
    release_image: Option<String>,
    version: String,
}

/// The MachineConfigs of the settings objects.
#[derive(Debug, Default)]
pub(super) struct Generated {
    pub(super) configs: Vec<Manifest<MachineConfig>>,
    pub(super) faults: Vec<Fault>,
}

impl SettingsObjects {
    /// Takes an object of one of the kinds; returns any other.
    pub(super) fn add(&mut self, object: Object, faults: &mut Vec<Fault>) -> Option<Object> {
        let ours = object.api_version == super::manifests::API_VERSION;
        match object.kind.as_str() {
            "KubeletConfig" if ours => add(&mut self.kubelet_configs, object, faults),
            "ContainerRuntimeConfig" if ours => add(&mut self.runtime_configs, object, faults),
            "ConfigMap" if object.api_version == "v1" && object.name == CONFIG_MAP => {
                match object.root.typed::<ConfigMap>() {
                    Ok(map) => self.add_config_map(&map, object, faults),
                    Err(error) => faults.push(object.type_fault(error)),
                }
            }
            "Node" if object.api_version == "v1" => self.add_node(&object),
            _ => return self.add_setting(object, faults),
        }
        None
    }

    /// Reads the release from the ControllerConfig.
    pub(super) fn add_release(&mut self, object: &Object) {
        let text = |path: &FieldPath| {
            object.root.find(path).and_then(SpannedValue::as_str).unwrap_or_default().to_owned()
        };
        let image = text(&FieldPath::of("spec.releaseImage"));
        self.release_image = (!image.is_empty()).then_some(image);
        let key = mco_api::annotation::RELEASE_IMAGE_VERSION.name();
        self.version = text(&FieldPath::of("metadata.annotations").member(key));
    }

    /// Returns true if the input has no settings.
    pub(super) fn is_empty(&self) -> bool {
        self.kubelet_configs.is_empty()
            && self.runtime_configs.is_empty()
            && self.node.is_none()
            && self.image.is_none()
    }

    fn add_config_map(&mut self, map: &ConfigMap, object: Object, faults: &mut Vec<Fault>) {
        match ClusterSettings::from_config_map(map) {
            Ok(settings) => {
                self.cluster = settings;
                (self.node, self.image) = (Some(object.clone()), Some(object));
            }
            Err(error) => {
                let fault = Fault::error("BadSettings", chain(&error));
                faults.push(object.fault_at(&FieldPath::of("data"), fault));
            }
        }
    }

    fn add_setting(&mut self, object: Object, faults: &mut Vec<Fault>) -> Option<Object> {
        let value: Value = serde_json::from_str(&object.root.to_json()).unwrap_or_default();
        match self.cluster.add_manifest(&object.file.name, &value) {
            Ok(false) => return Some(object),
            Ok(true) if matches!(object.kind.as_str(), "Node" | "FeatureGate" | "APIServer") => {
                self.node = Some(object);
            }
            Ok(true) => self.image = Some(object),
            Err(error) => {
                let fault = Fault::error("BadSettings", chain(&error));
                faults.push(object.fault_at(&FieldPath::of("spec"), fault));
            }
        }
        None
    }

    fn add_node(&mut self, object: &Object) {
        let path = FieldPath::of("status.nodeInfo.containerRuntimeVersion");
        let version = object.root.find(&path).and_then(SpannedValue::as_str);
        self.engines.extend(version.map(str::to_owned));
    }

    /// Generates the MachineConfigs that the input does not contain already.
    pub(super) fn generate(
        &self,
        pools: &[&MachineConfigPool],
        configs: &[&MachineConfig],
    ) -> Generated {
        if self.is_empty() {
            return Generated::default();
        }
        let kubelet_configs: Vec<_> = self.kubelet_configs.iter().map(|it| &it.value).collect();
        let runtime_configs: Vec<_> = self.runtime_configs.iter().map(|it| &it.value).collect();
        // The objects of an OpenShift cluster, not those of the ConfigMap.
        let is_openshift = self.image.as_ref().is_some_and(|image| image.kind == "Image");
        let found = from_settings(&SettingsSources {
            pools,
            configs,
            kubelet_configs: &kubelet_configs,
            runtime_configs: &runtime_configs,
            settings: &self.cluster,
            empty: if is_openshift { EmptyConfig::Kept } else { EmptyConfig::LeftOut },
            engines: Engines::of(self.engines.iter().map(String::as_str)),
            release_image: self.release_image.as_deref(),
            version: &self.version,
            build: &Build { version: String::new(), hash: String::new() },
        });
        let mut generated = Generated::default();
        let known: BTreeSet<_> =
            configs.iter().filter_map(|config| config.metadata.name.as_deref()).collect();
        for (source, value) in found.configs {
            let name = value.metadata.name.clone().unwrap_or_default();
            if let Some(object) = self.object(&source).filter(|_| !known.contains(&*name)) {
                let object = Object { kind: "MachineConfig".to_owned(), name, ..object.clone() };
                generated.configs.push(Manifest { object, value });
            }
        }
        let refused = found
            .refused
            .into_iter()
            .map(|(source, text)| (source, Fault::error("SettingsRefused", text)));
        let without_effect = found.without_effect.into_iter().map(|(source, text)| {
            (source, Fault::warning("NoEffect", format!("setting without effect: {text}")))
        });
        let unselected = found.unselected.into_iter().map(|(source, text)| {
            let fault = Fault::warning("NotSelected", text);
            let hint = "check its machineConfigPoolSelector against the labels of the pools, and add \
                        the pools to the input";
            (source, fault.hint(hint))
        });
        for (source, fault) in refused.chain(without_effect).chain(unselected) {
            generated
                .faults
                .extend(self.object(&source).map(|object| object.fault_at(&place(&source), fault)));
        }
        generated
    }

    fn object(&self, source: &SettingsSource) -> Option<&Object> {
        match source {
            SettingsSource::KubeletConfig(name) => named(&self.kubelet_configs, name),
            SettingsSource::ContainerRuntimeConfig(name) => named(&self.runtime_configs, name),
            SettingsSource::Node => self.node.as_ref().or(self.image.as_ref()),
            SettingsSource::Image => self.image.as_ref().or(self.node.as_ref()),
        }
    }
}

fn named<'m, T>(manifests: &'m [Manifest<T>], name: &str) -> Option<&'m Object> {
    manifests.iter().map(|manifest| &manifest.object).find(|object| object.name == name)
}

/// Returns the path of the settings in their object.
fn place(source: &SettingsSource) -> FieldPath {
    FieldPath::of(match source {
        SettingsSource::KubeletConfig(_) => "spec.kubeletConfig",
        SettingsSource::ContainerRuntimeConfig(_) => "spec.containerRuntimeConfig",
        SettingsSource::Node | SettingsSource::Image => "spec",
    })
}

fn add<T: DeserializeOwned>(to: &mut Vec<Manifest<T>>, object: Object, faults: &mut Vec<Fault>) {
    match object.root.typed::<T>() {
        Ok(value) => to.push(Manifest { object, value }),
        Err(error) => faults.push(object.type_fault(error)),
    }
}
