//! MachineConfigs that the controller generates for a pool from a settings object, such as
//! `99-worker-generated-kubelet-1` from a KubeletConfig: their names and their contents.

mod difference;
mod manifests;

use std::cmp::Ordering;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference, Time};
use kube_core::{Resource, ResourceExt as _};
use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfigSpec, RawConfig, annotation, label, selector,
};
use mco_ignition::data_url;
use serde_json::json;

pub use self::{
    difference::{difference, merge_patch},
    manifests::{FromSettings, SettingsSource, SettingsSources, from_settings},
};
use crate::render::Build;

/// Highest number of a generated MachineConfig of one pool; with the one that has no number, a pool
/// can have ten.
const MAX_NUMBER: u32 = 9;

/// A family of generated MachineConfigs, one for each settings object and pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// From KubeletConfigs.
    Kubelet,
    /// From ContainerRuntimeConfigs.
    ContainerRuntime,
}

impl Family {
    /// Returns the name of the MachineConfig without a number.
    #[must_use]
    pub fn base_name(self, pool: &str) -> String {
        let word = match self {
            Self::Kubelet => "kubelet",
            Self::ContainerRuntime => "containerruntime",
        };
        format!("99-{pool}-generated-{word}")
    }

    /// Returns the name of the MachineConfig with a suffix: empty, or a number.
    #[must_use]
    pub fn name(self, pool: &str, suffix: &str) -> String {
        let base = self.base_name(pool);
        if suffix.is_empty() { base } else { format!("{base}-{suffix}") }
    }

    /// Returns the number of a MachineConfig of this family and pool; 0 if its name has none.
    #[must_use]
    pub fn number(self, pool: &str, name: &str) -> Option<u32> {
        match name.strip_prefix(&self.base_name(pool))? {
            "" => Some(0),
            rest => rest.strip_prefix('-').and_then(number),
        }
    }
}

/// Parses a suffix without sign and leading zeros.
fn number(suffix: &str) -> Option<u32> {
    let parsed: u32 = suffix.parse().ok()?;
    (parsed.to_string() == suffix).then_some(parsed)
}

/// The members of a settings object that determine the names of its MachineConfigs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Name of the object.
    pub name: String,
    /// Creation time of the object.
    pub created: Option<Time>,
    /// Suffix that the object has already.
    pub suffix: Option<String>,
    /// Finalizers of the object: names of its MachineConfigs.
    pub finalizers: Vec<String>,
}

impl Settings {
    /// Reads the members of an object.
    pub fn of(object: &impl Resource<DynamicType = ()>) -> Self {
        let suffix = object.annotations().get(annotation::CONFIG_NAME_SUFFIX.name());
        Self {
            name: object.name_any(),
            created: object.creation_timestamp(),
            suffix: suffix.cloned(),
            finalizers: object.finalizers().to_vec(),
        }
    }

    /// Returns the number of the suffix; 0 if it is empty.
    fn number(&self) -> Option<u32> {
        match self.suffix.as_deref()? {
            "" => Some(0),
            text => number(text),
        }
    }

    fn by_age(&self, other: &Self) -> Ordering {
        let created = |settings: &Self| settings.created.as_ref().map(|time| time.0);
        created(self).cmp(&created(other)).then_with(|| self.name.cmp(&other.name))
    }
}

/// A pool that has as many MachineConfigs of a family as it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The pool has ten KubeletConfigs.
    // Compat: the text of the reference.
    #[error(
        "max number of supported kubelet config (10) has been reached. Please delete old kubelet \
         configs before retrying"
    )]
    KubeletConfigs,
    /// The pool has ten ContainerRuntimeConfigs.
    // Compat: the text of the reference.
    #[error(
        "max number of supported ctrcfgs (10) has been reached. Please delete old ctrcfgs before \
         retrying"
    )]
    ContainerRuntimeConfigs,
}

/// Returns the suffix of the MachineConfigs of `object`.
///
/// `all` are the settings objects of the same kind that select the pool, with or without `object`
/// itself; `exists` tells if a MachineConfig exists. The suffix is that of the object, else the
/// highest of a MachineConfig that a finalizer names. A new object gets the number after all
/// others, so that the newest object wins; a number is not used again while a higher one is.
///
/// Objects that arrive together get their numbers in the order of their age, whatever the order in
/// which they are reconciled. The reference gives numbers in the order of reconciles.
pub fn suffix(
    family: Family,
    pool: &str,
    object: &Settings,
    all: &[Settings],
    exists: impl Fn(&str) -> bool,
) -> Result<String, LimitError> {
    if let Some(suffix) = &object.suffix {
        return Ok(suffix.clone());
    }
    let made = object.finalizers.iter().filter(|name| exists(name));
    let found = if let Some(made) = made.filter_map(|name| family.number(pool, name)).max() {
        made
    } else {
        let others = || all.iter().filter(|other| other.name != object.name);
        let next = others().filter_map(Settings::number).max().map_or(0, |highest| highest + 1);
        let is_before =
            |other: &&Settings| other.suffix.is_none() && other.by_age(object) == Ordering::Less;
        next + u32::try_from(others().filter(is_before).count()).unwrap_or(u32::MAX - next)
    };
    match found {
        0 => Ok(String::new()),
        number if number <= MAX_NUMBER => Ok(number.to_string()),
        _ => Err(match family {
            Family::Kubelet => LimitError::KubeletConfigs,
            Family::ContainerRuntime => LimitError::ContainerRuntimeConfigs,
        }),
    }
}

/// Returns the suffix of the MachineConfigs of `object` in all its pools: the highest that any of them
/// needs. `all` are the settings objects of the same kind, with their pool selectors.
pub fn common_suffix<'p>(
    family: Family,
    object: &Settings,
    pools: impl IntoIterator<Item = &'p MachineConfigPool>,
    all: &[(Settings, Option<&LabelSelector>)],
    exists: impl Fn(&str) -> bool,
) -> Result<String, LimitError> {
    let mut highest = String::new();
    for pool in pools {
        // The selector of another object is its own concern.
        let selecting =
            all.iter().filter(|(_, selector)| selects(*selector, pool).unwrap_or_default());
        let selecting: Vec<Settings> = selecting.map(|(other, _)| other.clone()).collect();
        // Suffixes are empty or have one digit.
        highest = highest.max(suffix(family, &pool.name_any(), object, &selecting, &exists)?);
    }
    Ok(highest)
}

/// Returns true if the pool selector of a settings object matches the labels of a pool. No selector and
/// an empty one match no pool.
pub fn selects(
    pools: Option<&LabelSelector>,
    pool: &MachineConfigPool,
) -> Result<bool, selector::SelectorError> {
    match pools {
        Some(pools) if !selector::is_empty(pools) => selector::matches(pools, pool.labels()),
        Some(_) | None => Ok(false),
    }
}

/// A file of a generated MachineConfig, with mode 0644.
#[derive(Clone, PartialEq, Eq)]
pub struct GeneratedFile {
    /// Absolute path.
    pub path: String,
    /// Contents of the file.
    pub contents: Vec<u8>,
}

impl GeneratedFile {
    /// Returns a file with this text.
    #[must_use]
    pub fn new(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), contents: contents.into() }
    }
}

impl std::fmt::Debug for GeneratedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GeneratedFile({}, {} bytes)", self.path, self.contents.len())
    }
}

/// Builds the spec of a generated MachineConfig.
///
/// Compat: the members of each file are those that the reference writes, because the name of the
/// rendered config depends on them.
#[must_use]
pub fn spec(files: &[GeneratedFile]) -> MachineConfigSpec {
    let files: Vec<_> = files
        .iter()
        .map(|file| {
            json!({
                "contents": {"compression": "", "source": data_url::encode_base64(&file.contents)},
                "mode": 0o644,
                "overwrite": true,
                "path": file.path,
            })
        })
        .collect();
    let mut config = json!({"ignition": {"version": "3.5.0"}});
    if let Some(config) = config.as_object_mut().filter(|_| !files.is_empty()) {
        config.insert("storage".to_owned(), json!({"files": files}));
    }
    let config = RawConfig::from_json(config.to_string());
    MachineConfigSpec {
        config: Some(config.expect("a serialized JSON value is valid JSON")),
        ..MachineConfigSpec::default()
    }
}

/// Builds a MachineConfig for the role, generated by `build`.
#[must_use]
pub fn machine_config(
    name: &str,
    role: &str,
    spec: MachineConfigSpec,
    build: &Build,
    owner: Option<OwnerReference>,
) -> MachineConfig {
    let mut config = MachineConfig::new(name, spec);
    config.metadata.labels = Some([(label::ROLE.to_owned(), role.to_owned())].into());
    let annotations = config.metadata.annotations.get_or_insert_default();
    annotation::GENERATED_BY_CONTROLLER_VERSION.set(annotations, &build.hash);
    config.metadata.owner_references = owner.map(|owner| vec![owner]);
    config
}

/// Builds a reference to the object that controls a generated MachineConfig.
pub fn controller_reference<K: Resource<DynamicType = ()>>(object: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns the contents of the file at `path` in a MachineConfig; `None` if the config has no such file,
/// or its contents are not embedded.
#[must_use]
pub fn file_of(config: &MachineConfig, path: &str) -> Option<Vec<u8>> {
    let machine = crate::machine::Machine::read(config).ok()?;
    let file = machine.config.storage.files.into_iter().find(|file| file.path == path)?;
    crate::machine::contents(&file).ok()
}

#[cfg(test)]
mod tests;
