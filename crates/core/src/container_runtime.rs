//! Settings of the container engine from a ContainerRuntimeConfig: their checks and the files that
//! they give the nodes of a pool.

mod containerd;
mod crio;
mod engine;
mod plan;
mod storage;
mod validate;

#[cfg(test)]
mod tests;

use mco_api::{container_runtime_config::ContainerRuntimeSettings, quantity::Quantity};

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
    toml::TomlFault,
};

/// Path of the storage file.
pub const STORAGE_CONF: &str = "/etc/containers/storage.conf";

/// Path of containerd's configuration.
pub const CONTAINERD_CONF: &str = "/etc/containerd/config.toml";

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

/// Files of a base config that settings are merged into; `None` for one that it does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseFiles {
    /// Contents of [`STORAGE_CONF`].
    pub storage_conf: Option<String>,
    /// Contents of [`CONTAINERD_CONF`].
    pub containerd_conf: Option<String>,
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
    /// containerd's configuration in the base config cannot be edited.
    #[error("failed to edit {CONTAINERD_CONF} of the base config")]
    Containerd(#[source] TomlFault),
}

const NO_BASE: &str =
    "the base config has no /etc/containers/storage.conf; write the file with a MachineConfig";
const ON_CONTAINERD: &str = "containerd has no such setting";
const NO_CONTAINERD_CONF: &str = "the base config has no /etc/containerd/config.toml; write the file \
    with a MachineConfig";

/// Writes the files for a pool whose nodes have these engines.
pub fn files(
    settings: &ContainerRuntimeSettings,
    base: &BaseFiles,
    engines: Engines,
    kubelet: Delivery,
    stores: AdditionalStores,
) -> Result<RuntimeFiles, RuntimeConfigError> {
    check(settings)?;
    let mut found = RuntimeFiles::default();
    if engines.has_crio() {
        if needs_storage(settings, stores) {
            match &base.storage_conf {
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
        found.add_containerd(settings, base.containerd_conf.as_deref(), kubelet, stores)?;
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
        base: Option<&str>,
        kubelet: Delivery,
        stores: AdditionalStores,
    ) -> Result<(), RuntimeConfigError> {
        self.add_kubelet_fragment(settings, kubelet);
        let own = containerd::settings_of(settings);
        match base {
            Some(base) if !own.is_empty() => {
                let text = containerd::config(base, settings);
                let text = text.map_err(RuntimeConfigError::Containerd)?;
                self.files.push(GeneratedFile::new(CONTAINERD_CONF, text));
            }
            Some(_) => {}
            None => self.report(own, NO_CONTAINERD_CONF),
        }
        self.report(storage::settings_of(settings, stores), ON_CONTAINERD);
        if stores == AdditionalStores::Enabled && !settings.additional_artifact_stores.is_empty() {
            self.report(vec!["additionalArtifactStores"], ON_CONTAINERD);
        }
        Ok(())
    }

    /// Adds a fragment of the kubelet's config for what the kubelet does on behalf of containerd.
    fn add_kubelet_fragment(&mut self, settings: &ContainerRuntimeSettings, kubelet: Delivery) {
        let size = settings.log_size_max.as_ref().and_then(|size| Quantity::of(size).ok());
        let size = size.map(|size| size.value()).filter(|size| *size != 0);
        let pids = settings.pids_limit.filter(|limit| *limit != 0);
        if size.is_none() && pids.is_none() {
            return;
        }
        let size = size.map(|size| format!("containerLogMaxSize: \"{size}\"\n"));
        let pids = pids.map(|pids| format!("podPidsLimit: {pids}\n"));
        let fragment = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\n{}kind: KubeletConfiguration\n{}",
            size.unwrap_or_default(),
            pids.unwrap_or_default()
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
}
