//! The settings of a MachineConfiguration among the manifests.

use mco_api::{
    MachineConfiguration,
    machine_configuration::{StorageOverride, disruption::ClusterPolicies},
};

use crate::{load::Loaded, plan};

/// What a MachineConfiguration says, or what counts without one.
pub(super) struct Knobs {
    pub(super) policies: ClusterPolicies,
    pub(super) overrides: Vec<StorageOverride>,
}

/// Takes the MachineConfiguration out of what was loaded; one that makes no sense becomes a fault.
pub(super) fn take(loaded: &mut Loaded) -> Knobs {
    let (ours, rest) = std::mem::take(&mut loaded.objects)
        .into_iter()
        .partition(|object| object.kind == "MachineConfiguration");
    loaded.objects = rest;
    let mut last: Option<MachineConfiguration> = None;
    for object in ours {
        match object.node.typed() {
            Ok(value) => last = Some(value),
            Err(misfit) => loaded.faults.push(object.misfit(misfit)),
        }
    }
    let policies = plan::input::policies(last.as_ref());
    let overrides = last
        .and_then(|knobs| knobs.spec.irreconcilable_validation_overrides)
        .map(|overrides| overrides.storage)
        .unwrap_or_default();
    Knobs { policies, overrides }
}
