//! Settings of the container engine from a ContainerRuntimeConfig: their checks and the files that
//! they give the nodes of a pool.

mod crio;
mod engine;
mod plan;
mod storage;
mod validate;

#[cfg(test)]
mod tests;

use mco_api::container_runtime_config::ContainerRuntimeSettings;

pub use self::{
    crio::{drop_ins, needs_drop_ins},
    engine::Engines,
    plan::{
        PoolFacts, RuntimePlan, RuntimePlanError, base_config, conditions, is_own_finalizer,
        is_pending, plan,
    },
    storage::{StorageError, needs_storage, storage_conf},
    validate::{SettingsFault, check},
};
use crate::{
    generated::GeneratedFile,
    image_config::containerd::NoEffect,
    kubelet::{Delivery, drop_in},
    quantity::Quantity,
};

/// Path of the storage file.
pub const STORAGE_CONF: &str = "/etc/containers/storage.conf";

/// Name of the fragment of the kubelet's config for nodes with containerd. The fragments of
/// KubeletConfigs are read after it and win.
const KUBELET_FRAGMENT: &str = "40-container-runtime.conf";

/// Folder of fragments that a kubelet of the base configs reads.
const BASE_FRAGMENTS: &str = "/etc/openshift/kubelet.conf.d";

/// The feature that adds storage directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdditionalStores {
    /// Additional directories are written.
    Enabled,
    /// Additional directories are ignored.
    Disabled,
}

/// The files of a ContainerRuntimeConfig for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFiles {
    /// Files, in the reference's order.
    pub files: Vec<GeneratedFile>,
    /// Settings that have no effect on some nodes of the pool.
    pub without_effect: Vec<NoEffect>,
}

/// The reason why settings cannot be applied to a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] SettingsFault),
    /// The storage file cannot be written.
    ///
    /// Compat: the text is the reference's.
    #[error("could not update container runtime config with new changes")]
    Storage(#[from] StorageError),
}

const NO_BASE: &str =
    "the base config has no /etc/containers/storage.conf; write the file with a MachineConfig";
const ON_CONTAINERD: &str = "containerd has no such setting";
const PODS: &str = "containerd has no such setting; set podPidsLimit with a KubeletConfig";
const RUNTIME: &str = "containerd starts containers with the runtime of its own config.toml; \
    select another with a RuntimeClass";
const LEVEL: &str = "containerd reads its log level when it starts; set it in its own config.toml";

/// Writes the files for a pool whose nodes have these engines. `base` is the storage file of the base
/// config, if it has one.
pub fn files(
    settings: &ContainerRuntimeSettings,
    base: Option<&str>,
    engines: Engines,
    kubelet: Delivery,
    stores: AdditionalStores,
) -> Result<RuntimeFiles, RuntimeConfigError> {
    check(settings)?;
    let mut found = RuntimeFiles::default();
    if engines.has_crio() {
        if needs_storage(settings, stores) {
            match base {
                Some(base) => {
                    let text = storage_conf(base, settings, stores)?;
                    found.files.push(GeneratedFile::new(STORAGE_CONF, text));
                }
                None => found.report(storage::settings_of(settings, stores), NO_BASE),
            }
        }
        found.files.extend(drop_ins(settings, stores));
    }
    if engines.has_containerd() {
        found.add_containerd(settings, kubelet, stores);
    }
    Ok(found)
}

impl RuntimeFiles {
    fn report(&mut self, settings: Vec<&'static str>, reason: &'static str) {
        let without_effect = settings.into_iter().map(str::to_owned);
        let entries = without_effect.map(|setting| NoEffect { setting, reason });
        self.without_effect.extend(entries);
    }

    /// Adds what containerd and its kubelet have instead of CRI-O's settings.
    fn add_containerd(
        &mut self,
        settings: &ContainerRuntimeSettings,
        kubelet: Delivery,
        stores: AdditionalStores,
    ) {
        if let Some(size) = settings.log_size_max.as_ref().and_then(|size| Quantity::of(size).ok())
            && size.value() != 0
        {
            let fragment = format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\ncontainerLogMaxSize: \"{}\"\n\
                 kind: KubeletConfiguration\n",
                size.value()
            );
            let folder = match kubelet {
                Delivery::WholeFile => BASE_FRAGMENTS,
                Delivery::DropIn => drop_in::FOLDER,
            };
            let path = format!("{folder}/{KUBELET_FRAGMENT}");
            self.files.push(GeneratedFile::new(path, fragment));
            if kubelet == Delivery::DropIn {
                self.files.push(drop_in::unit());
            }
        }
        if settings.pids_limit.is_some_and(|limit| limit != 0) {
            self.report(vec!["pidsLimit"], PODS);
        }
        if !settings.log_level.is_empty() {
            self.report(vec!["logLevel"], LEVEL);
        }
        // runc is what containerd starts by default.
        if crio::default_runtime(settings).is_some_and(|runtime| runtime != "runc") {
            self.report(vec!["defaultRuntime"], RUNTIME);
        }
        self.report(storage::settings_of(settings, stores), ON_CONTAINERD);
        if stores == AdditionalStores::Enabled && !settings.additional_artifact_stores.is_empty() {
            self.report(vec!["additionalArtifactStores"], ON_CONTAINERD);
        }
    }
}
