//! Ownership of generated MachineConfigs: the finalizers of KubeletConfigs, names of older releases,
//! and MachineConfigs whose origin is gone.

use kube_core::ResourceExt;
use mco_api::{KubeletConfig, MachineConfig, MachineConfigPool, annotation, label};

use super::drop_in;
use crate::{generated, machine::Machine, render::Build};

/// A family of MachineConfigs with settings of kubelets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Settings of nodes.
    NodeConfig,
    /// Features.
    Features,
    /// A KubeletConfig.
    KubeletConfig,
}

impl Origin {
    const ALL: [Self; 3] = [Self::NodeConfig, Self::Features, Self::KubeletConfig];

    const fn prefix(self) -> &'static str {
        match self {
            Self::NodeConfig => "97",
            Self::Features => "98",
            Self::KubeletConfig => "99",
        }
    }

    /// Returns the name of the pool's MachineConfig, without a number.
    #[must_use]
    pub fn name(self, pool: &str) -> String {
        format!("{}-{pool}-generated-kubelet", self.prefix())
    }

    /// Returns the name that older releases of the reference gave the pool's MachineConfig.
    #[must_use]
    pub fn legacy_name(self, pool: &MachineConfigPool) -> Option<String> {
        let uid = pool.uid()?;
        Some(format!("{}-{}-{uid}-kubelet", self.prefix(), pool.name_any()))
    }
}

/// Returns true for a finalizer of a KubeletConfig that names one of its MachineConfigs: by its name,
/// or, in older releases of the reference, by its UID. Finalizers of other controllers stay.
#[must_use]
pub fn is_own_finalizer(finalizer: &str) -> bool {
    let is_name = finalizer.starts_with("99-")
        && (finalizer.contains("-generated-kubelet") || finalizer.ends_with("-kubelet"));
    is_name || is_uid(finalizer)
}

fn is_uid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Returns the names of generated MachineConfigs whose KubeletConfig or pool is gone.
///
/// Only MachineConfigs that a controller generated are returned, of any build: the one that made
/// them does not run any more, or deletes them itself.
#[must_use]
pub fn orphans<'a>(
    configs: impl IntoIterator<Item = &'a MachineConfig>,
    kubelet_configs: &[impl AsRef<KubeletConfig>],
    pools: &[impl AsRef<MachineConfigPool>],
) -> Vec<String> {
    let has_pool = |name: &str| pools.iter().any(|pool| pool.as_ref().name_any() == name);
    let has_owner = |uid: &str| {
        kubelet_configs.iter().any(|config| config.as_ref().uid().as_deref() == Some(uid))
    };
    let is_orphan = |config: &&MachineConfig| {
        let Some(role) = config.labels().get(label::ROLE) else { return false };
        let name = config.name_any();
        let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
        let origin = Origin::ALL.into_iter().find(|origin| name.starts_with(&origin.name(role)));
        let Some(origin) = origin.filter(|_| config.annotations().contains_key(key)) else {
            return false;
        };
        let mut owners = config.owner_references().iter().filter(|one| one.kind == "KubeletConfig");
        let is_ownerless = owners.next().is_some_and(|owner| !has_owner(&owner.uid));
        !has_pool(role) || (origin == Origin::KubeletConfig && is_ownerless)
    };
    configs.into_iter().filter(is_orphan).map(ResourceExt::name_any).collect()
}

/// Returns true for a MachineConfig of the cluster's settings that this controller made and may
/// delete when the settings are gone: it carries the hash of this build, or contains a fragment,
/// which no other controller writes.
#[must_use]
pub fn is_own(config: &MachineConfig, build: &Build) -> bool {
    let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    if config.annotations().get(key) == Some(&build.hash) {
        return true;
    }
    generated::file_of(config, drop_in::UNIT).is_some()
        && Machine::read(config).is_ok_and(|machine| {
            let mut files = machine.config.storage.files.iter();
            files.all(|file| file.path == drop_in::UNIT || file.path.starts_with(drop_in::FOLDER))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn made(name: &str, role: &str, owner: Option<&str>) -> MachineConfig {
        let owner = owner.map(
            |uid| json!([{"apiVersion": "v1", "kind": "KubeletConfig", "name": "k", "uid": uid}]),
        );
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {label::ROLE: role}, "ownerReferences": owner,
                "annotations": {annotation::GENERATED_BY_CONTROLLER_VERSION.name(): "other"},
            },
            "spec": {},
        }))
        .unwrap()
    }

    // covers: KUB-16
    #[test]
    fn only_generated_configs_without_an_origin_are_orphans() {
        let configs = [
            made("99-worker-generated-kubelet", "worker", Some("here")),
            made("99-worker-generated-kubelet-1", "worker", Some("gone")),
            made("97-worker-generated-kubelet", "worker", None),
            made("97-infra-generated-kubelet", "infra", None),
            made("99-infra-generated-kubelet", "infra", Some("here")),
            made("99-worker-generated-registries", "worker", None),
            made("99-worker-mine", "worker", Some("gone")),
        ];
        let config: KubeletConfig =
            serde_json::from_value(json!({"metadata": {"name": "k", "uid": "here"}, "spec": {}}))
                .unwrap();
        let pool: MachineConfigPool =
            serde_json::from_value(json!({"metadata": {"name": "worker"}, "spec": {}})).unwrap();
        let found = orphans(&configs, &[Arc::new(config)], &[Arc::new(pool)]);
        let expected = [
            "99-worker-generated-kubelet-1",
            "97-infra-generated-kubelet",
            "99-infra-generated-kubelet",
        ];
        assert_eq!(found, expected);
        // The same name, made by a user.
        let mut mine = made("99-worker-generated-kubelet-1", "worker", Some("gone"));
        mine.metadata.annotations = None;
        let none: [Arc<KubeletConfig>; 0] = [];
        let no_pools: [Arc<MachineConfigPool>; 0] = [];
        assert_eq!(orphans([&mine], &none, &no_pools), Vec::<String>::new());
    }

    #[test]
    fn finalizers_of_other_controllers_are_not_ours() {
        let ours = [
            "99-worker-generated-kubelet",
            "99-worker-generated-kubelet-3",
            "99-worker-0f4f4c9a-7a7e-4f0e-9d0b-1a2b3c4d5e6f-kubelet",
            "0f4f4c9a-7a7e-4f0e-9d0b-1a2b3c4d5e6f",
        ];
        assert!(ours.iter().all(|finalizer| is_own_finalizer(finalizer)));
        let others = ["example.com/backup", "foregroundDeletion", "99-worker-generated-registries"];
        assert!(!others.iter().any(|finalizer| is_own_finalizer(finalizer)));
    }
}
