//! The MachineConfiguration: the status that the operator publishes, and the settings that are invalid.
//!
//! Daemons take the node disruption policies from the status. An invalid entry is left out of it, so
//! that one mistake keeps no node from being updated.

mod boot_images;
mod faults;
#[cfg(test)]
mod tests;

use mco_api::{
    MachineConfigPool, MachineConfiguration,
    condition::PoolCondition,
    machine_configuration::{
        LogLevel, MachineConfigurationStatus,
        disruption::{NodeDisruptionPolicyConfig, NodeDisruptionPolicyStatus},
    },
};
use serde_json::{Value, json};

pub use self::boot_images::{Facts, Provisioning, is_enabled};
use crate::{generated::merge_patch, plan::merge_policies};

const BOOT_IMAGES_DEGRADED: &str = "BootImageUpdateDegraded";

/// Returns the status to publish. Without facts about the platform, its members about boot images stay
/// as they are.
#[must_use]
pub fn status(found: &MachineConfiguration, facts: Option<&Facts>) -> MachineConfigurationStatus {
    let mut status = found.status.clone().unwrap_or_default();
    let mut own = found.spec.node_disruption_policy.clone().unwrap_or_default();
    faults::remove_invalid(&mut own);
    status.node_disruption_policy_status =
        Some(NodeDisruptionPolicyStatus { cluster_policies: Some(merge_policies(&own)) });
    if let Some(facts) = facts {
        let managed = boot_images::managed(&found.spec, facts);
        status.boot_image_skew_enforcement_status =
            boot_images::skew(&found.spec, &status, managed.as_ref(), facts);
        status.managed_boot_images_status = managed;
    }
    status.observed_generation = found.metadata.generation.unwrap_or_default();
    status
}

/// Returns the merge patch that changes the stored status to `wanted`; `None` if they are equal.
#[must_use]
pub fn status_patch(
    found: &MachineConfiguration,
    wanted: &MachineConfigurationStatus,
) -> Option<Value> {
    let stored = found.status.as_ref().map_or_else(|| json!({}), |status| json!(status));
    merge_patch(&stored, &json!(wanted))
}

/// Returns true if `wanted` makes the cluster update the boot images of all MachineSets by default,
/// and the stored status does not.
#[must_use]
pub fn opts_in(found: &MachineConfiguration, wanted: &MachineConfigurationStatus) -> bool {
    let stored = found.status.as_ref().and_then(|it| it.managed_boot_images_status.as_ref());
    boot_images::opts_in(&found.spec, stored, wanted.managed_boot_images_status.as_ref())
}

/// Returns true if the stored policies are of an older generation. Nodes are not updated until those of
/// the current one are published.
#[must_use]
pub fn is_outdated(found: &MachineConfiguration) -> bool {
    let published = found.status.as_ref().filter(|it| it.node_disruption_policy_status.is_some());
    let current = found.metadata.generation.unwrap_or_default();
    published.is_some_and(|status| status.observed_generation != current)
}

/// Returns the entries of the node disruption policy that are invalid, each with its field and the
/// reason.
#[must_use]
pub fn faults(policy: &NodeDisruptionPolicyConfig) -> Vec<String> {
    faults::find(policy)
}

/// Returns the reason why the update of boot images failed, if it did.
#[must_use]
pub fn boot_image_failure(found: &MachineConfiguration) -> Option<&str> {
    let conditions = found.status.iter().flat_map(|status| &status.conditions);
    let mut failed =
        conditions.filter(|it| it.type_ == BOOT_IMAGES_DEGRADED && it.status == "True");
    failed.next().map(|it| it.message.as_str())
}

/// Returns the verbosity of all processes, as the flag `--v` has it. An unknown level is that of
/// administrators.
#[must_use]
pub fn verbosity(found: Option<&MachineConfiguration>) -> u8 {
    match found.and_then(|found| found.spec.operator_log_level.as_ref()) {
        Some(LogLevel::Debug) => 4,
        Some(LogLevel::Trace) => 6,
        Some(LogLevel::TraceAll) => 8,
        Some(LogLevel::Normal | LogLevel::Unset | LogLevel::Other(_)) | None => NORMAL,
    }
}

/// Verbosity for administrators.
pub const NORMAL: u8 = 2;

/// Returns true if a node of the pool runs the config that the pool targets.
#[must_use]
pub fn serves_config(pool: &MachineConfigPool) -> bool {
    let Some(status) = &pool.status else { return false };
    let holds = |kind: &PoolCondition| {
        let mut conditions = status.conditions.iter();
        conditions.any(|it| it.kind == kind.as_str() && it.status == "True")
    };
    // Counts and conditions of an older generation are about another config.
    let is_current = status.observed_generation == pool.metadata.generation.unwrap_or_default();
    let has_config = !pool.spec.configuration.rendered.name.is_empty();
    let is_updating = holds(&PoolCondition::Updating) && status.updated_machine_count > 0;
    has_config && is_current && (holds(&PoolCondition::Updated) || is_updating)
}
