//! The MachineConfigs of all settings objects of some manifests, as the controller of a cluster
//! generates them.

use std::fmt;

use kube_core::ResourceExt as _;
use mco_api::{ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool, label};

use super::{file_of, machine_config};
use crate::{
    cluster_settings::ClusterSettings,
    container_runtime::{
        self, BaseFiles as RuntimeBaseFiles, CONTAINERD_CONF, Engines, PoolFacts, RuntimePlanError,
        STORAGE_CONF,
    },
    image_config::{
        BaseFiles, EmptyConfig, ImageConfig, ImageConfigError, POLICY_JSON, REGISTRIES_CONF,
    },
    kubelet::{self, Inputs, PlanError},
    lint::chain,
    render::Build,
};

/// The objects that MachineConfigs are generated from, and the facts that they depend on.
#[derive(Clone, Debug)]
pub struct SettingsSources<'s> {
    /// All pools.
    pub pools: &'s [&'s MachineConfigPool],
    /// MachineConfigs, the base configs among them.
    pub configs: &'s [&'s MachineConfig],
    /// KubeletConfigs.
    pub kubelet_configs: &'s [&'s KubeletConfig],
    /// ContainerRuntimeConfigs.
    pub runtime_configs: &'s [&'s ContainerRuntimeConfig],
    /// Settings of the cluster.
    pub settings: &'s ClusterSettings,
    /// Need for a MachineConfig with registries if nothing is set.
    pub empty: EmptyConfig,
    /// Container engines of the nodes.
    pub engines: Engines,
    /// Image that the cluster itself is pulled from.
    pub release_image: Option<&'s str>,
    /// Version of the cluster.
    pub version: &'s str,
    /// Build that the MachineConfigs name.
    pub build: &'s Build,
}

/// The object that a MachineConfig is generated from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsSource {
    /// The KubeletConfig of this name.
    KubeletConfig(String),
    /// The ContainerRuntimeConfig of this name.
    ContainerRuntimeConfig(String),
    /// Settings of nodes or features of the cluster.
    Node,
    /// Settings of images.
    Image,
}

impl fmt::Display for SettingsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KubeletConfig(name) => write!(f, "KubeletConfig {name}"),
            Self::ContainerRuntimeConfig(name) => write!(f, "ContainerRuntimeConfig {name}"),
            Self::Node => f.write_str("settings of nodes"),
            Self::Image => f.write_str("settings of images"),
        }
    }
}

/// The MachineConfigs of all settings objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FromSettings {
    /// MachineConfigs with their sources.
    pub configs: Vec<(SettingsSource, MachineConfig)>,
    /// Reasons why a source has no MachineConfigs.
    pub refused: Vec<(SettingsSource, String)>,
    /// Sources that select no pool.
    pub unselected: Vec<(SettingsSource, String)>,
    /// Settings without effect.
    pub without_effect: Vec<(SettingsSource, String)>,
}

/// Generates the MachineConfigs of all settings objects. An object that is refused does not hold up the
/// others.
#[must_use]
pub fn from_settings(sources: &SettingsSources<'_>) -> FromSettings {
    let mut found = FromSettings::default();
    if let Err(error) = found.add_registries(sources) {
        found.refused.push((SettingsSource::Image, chain(&error)));
    }
    found.add_runtime_configs(sources);
    found.add_kubelet_configs(sources);
    found
}

impl FromSettings {
    fn add_registries(&mut self, sources: &SettingsSources<'_>) -> Result<(), ImageConfigError> {
        let images = ImageConfig::read(sources.settings, sources.release_image)?;
        let is_built_in =
            |pool: &&&MachineConfigPool| pool.labels().contains_key(label::BUILT_IN_POOL);
        for pool in sources.pools.iter().filter(is_built_in) {
            let name = pool.name_any();
            let (registries, policy) = (
                sources.runtime_file(&name, REGISTRIES_CONF),
                sources.runtime_file(&name, POLICY_JSON),
            );
            let base = BaseFiles { registries: registries.as_deref(), policy: policy.as_deref() };
            let (image, build) = (sources.settings.image.as_ref(), sources.build);
            let plan = images.plan(&name, base, sources.engines, sources.empty, image, build)?;
            self.configs.extend(plan.config.map(|config| (SettingsSource::Image, config)));
            for setting in plan.without_effect {
                let entry = (SettingsSource::Image, setting.to_string());
                if !self.without_effect.contains(&entry) {
                    self.without_effect.push(entry);
                }
            }
        }
        Ok(())
    }

    fn add_runtime_configs(&mut self, sources: &SettingsSources<'_>) {
        let mut facts = Vec::new();
        for &pool in sources.pools {
            let file = |path: &str| sources.runtime_file(&pool.name_any(), path);
            let base = RuntimeBaseFiles {
                storage_conf: file(STORAGE_CONF),
                containerd_conf: file(CONTAINERD_CONF),
            };
            let kubelet = sources.config(&kubelet::base_name(&pool.name_any()));
            let kubelet = kubelet::delivery(kubelet);
            facts.push(PoolFacts { pool, base, engines: sources.engines, kubelet });
        }
        for config in sources.runtime_configs {
            let source = SettingsSource::ContainerRuntimeConfig(config.name_any());
            let all = sources.runtime_configs;
            match container_runtime::plan(
                config,
                all,
                &facts,
                |name| sources.has(name),
                sources.build,
            ) {
                Ok(plan) => {
                    let configs = plan.configs.into_iter().map(|(_, made)| (source.clone(), made));
                    self.configs.extend(configs);
                    let settings = plan.without_effect.iter().map(ToString::to_string);
                    self.without_effect.extend(settings.map(|setting| (source.clone(), setting)));
                }
                Err(error @ RuntimePlanError::NoPool(_)) => {
                    self.unselected.push((source, error.to_string()));
                }
                Err(error) => self.refused.push((source, chain(&error))),
            }
        }
    }

    fn add_kubelet_configs(&mut self, sources: &SettingsSources<'_>) {
        let latency = match kubelet::latency_profile(sources.settings.node.as_ref()) {
            Ok(latency) => latency,
            Err(error) => {
                self.refused.push((SettingsSource::Node, chain(&error)));
                return;
            }
        };
        let (settings, version) = (sources.settings, sources.version);
        let mut inputs = Vec::new();
        for &pool in sources.pools {
            let base = sources.config(&kubelet::base_name(&pool.name_any()));
            inputs.push(Inputs { pool, base, settings, version, latency });
        }
        for input in &inputs {
            self.add_cluster_kubelet(sources, input);
        }
        for config in sources.kubelet_configs {
            let source = SettingsSource::KubeletConfig(config.name_any());
            let all = sources.kubelet_configs;
            match kubelet::plan(config, all, &inputs, |name| sources.has(name), sources.build) {
                Ok(plan) => {
                    self.configs
                        .extend(plan.configs.into_iter().map(|made| (source.clone(), made)));
                }
                Err(error @ PlanError::NoPool) => {
                    self.unselected.push((source, error.to_string()));
                }
                Err(error) => self.refused.push((source, chain(&error))),
            }
        }
    }

    /// Adds the MachineConfigs of a pool from the settings of nodes and the features.
    fn add_cluster_kubelet(&mut self, sources: &SettingsSources<'_>, input: &Inputs<'_>) {
        let pool = input.pool.name_any();
        let node = kubelet::node_config(input).map_err(|error| chain(&error));
        let features = kubelet::features(input).map_err(|error| chain(&error));
        for (prefix, made) in [("97", node), ("98", features)] {
            match made {
                Ok(Some(spec)) => {
                    let name = format!("{prefix}-{pool}-generated-kubelet");
                    let config = machine_config(&name, &pool, spec, sources.build, None);
                    self.configs.push((SettingsSource::Node, config));
                }
                Ok(None) => {}
                Err(text) => self.refused.push((SettingsSource::Node, text)),
            }
        }
    }
}

impl<'s> SettingsSources<'s> {
    fn config(&self, name: &str) -> Option<&'s MachineConfig> {
        let mut configs = self.configs.iter();
        configs.find(|config| config.metadata.name.as_deref() == Some(name)).copied()
    }

    fn has(&self, name: &str) -> bool {
        self.config(name).is_some()
    }

    /// Returns a file of the base config with the files of a pool's container engine; that of `worker`
    /// for a custom pool.
    fn runtime_file(&self, pool: &str, path: &str) -> Option<String> {
        let of = |role: &str| self.config(&container_runtime::base_config(role));
        let base = of(pool).or_else(|| if pool == "master" { None } else { of("worker") });
        base.and_then(|base| file_of(base, path)).and_then(|bytes| String::from_utf8(bytes).ok())
    }
}
