//! Drop-ins of CRI-O, one for each setting.

use mco_api::{
    container_runtime_config::{ContainerRuntimeSettings, DefaultRuntime},
    quantity::Quantity,
};

use super::AdditionalStores;
use crate::{
    generated::GeneratedFile,
    toml::write::{Child, Table, Value},
};

/// Returns the runtime, unless it is left out or empty.
pub(super) fn default_runtime(settings: &ContainerRuntimeSettings) -> Option<&str> {
    let runtime = settings.default_runtime.as_ref().map(DefaultRuntime::as_str);
    runtime.filter(|runtime| !runtime.is_empty())
}

/// Returns true if a setting needs a drop-in.
#[must_use]
pub fn needs_drop_ins(settings: &ContainerRuntimeSettings, stores: AdditionalStores) -> bool {
    let size = settings.log_size_max.as_ref().and_then(|size| Quantity::of(size).ok());
    !settings.log_level.is_empty()
        || settings.pids_limit.is_some()
        || size.is_some_and(|size| !size.is_zero())
        || default_runtime(settings).is_some()
        || (stores == AdditionalStores::Enabled && !settings.additional_artifact_stores.is_empty())
}

/// Writes the drop-ins.
#[must_use]
pub fn drop_ins(
    settings: &ContainerRuntimeSettings,
    stores: AdditionalStores,
) -> Vec<GeneratedFile> {
    let mut files = Vec::new();
    if !settings.log_level.is_empty() {
        let level = Value::Text(settings.log_level.clone());
        files.push(drop_in("logLevel", "log_level", Some(level)));
    }
    if let Some(limit) = settings.pids_limit {
        // Compat: the drop-in for 0 sets nothing.
        let value = (limit != 0).then_some(Value::Number(limit));
        files.push(drop_in("pidsLimit", "pids_limit", value));
    }
    let size = settings.log_size_max.as_ref().and_then(|size| Quantity::of(size).ok());
    if let Some(size) = size.map(|size| size.value()).filter(|size| *size != 0) {
        files.push(drop_in("logSizeMax", "log_size_max", Some(Value::Number(size))));
    }
    if let Some(runtime) = default_runtime(settings) {
        let runtime = Value::Text(runtime.to_owned());
        files.push(drop_in("defaultRuntime", "default_runtime", Some(runtime)));
    }
    let artifacts = &settings.additional_artifact_stores;
    if stores == AdditionalStores::Enabled && !artifacts.is_empty() {
        let paths = Value::Texts(artifacts.iter().map(|store| store.path.clone()).collect());
        files.push(drop_in("additionalArtifactStores", "additional_artifact_stores", Some(paths)));
    }
    files
}

fn drop_in(name: &str, key: &str, value: Option<Value>) -> GeneratedFile {
    let (mut runtime, mut crio, mut root) = (Table::default(), Table::default(), Table::default());
    if let Some(value) = value {
        runtime.value(key, value);
    }
    crio.child("runtime", Child::One(runtime));
    root.child("crio", Child::One(crio));
    GeneratedFile::new(format!("/etc/crio/crio.conf.d/01-ctrcfg-{name}"), root.to_toml())
}
