//! The settings of a MachineConfiguration in the manifests.

use mco_api::{
    MachineConfiguration,
    machine_configuration::{StorageOverride, disruption::ClusterPolicies},
};

use crate::{load::Loaded, plan};

/// The settings of a MachineConfiguration, or the defaults without one.
pub(super) struct UpdateSettings {
    pub(super) policies: ClusterPolicies,
    pub(super) overrides: Vec<StorageOverride>,
}

/// Removes the MachineConfiguration from the loaded objects; an invalid one becomes a fault.
pub(super) fn take(loaded: &mut Loaded) -> UpdateSettings {
    let (configurations, rest) = std::mem::take(&mut loaded.objects)
        .into_iter()
        .partition(|object| object.kind == "MachineConfiguration");
    loaded.objects = rest;
    let mut last: Option<MachineConfiguration> = None;
    for object in configurations {
        match object.root.typed() {
            Ok(value) => last = Some(value),
            Err(error) => loaded.faults.push(object.type_fault(error)),
        }
    }
    let policies = plan::input::policies(last.as_ref());
    let overrides = last
        .and_then(|configuration| configuration.spec.irreconcilable_validation_overrides)
        .map(|overrides| overrides.storage)
        .unwrap_or_default();
    UpdateSettings { policies, overrides }
}
