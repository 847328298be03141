//! MachineConfiguration: settings of the operator itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::meta::ConditionSchema;
use crate::raw_config::RawConfig;
use crate::schema::Rule;
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

pub mod boot_images;
pub mod disruption;

use boot_images::{BootImageSkewEnforcement, BootImageSkewEnforcementStatus, ManagedBootImages};
use disruption::{NodeDisruptionPolicyConfig, NodeDisruptionPolicyStatus};

kind! {
    /// Settings of the machine config operator: node disruption policies, managed boot images and
    /// log levels. There is one object, named `cluster`.
    pub struct MachineConfiguration {
        spec: MachineConfigurationSpec,
        status: MachineConfigurationStatus,
    }
    Definition {
        group: "operator.openshift.io",
        plural: "machineconfigurations",
        labels: &[],
        rules: SKEW_RULES,
        ..Definition::COMMON
    }
}

wire_enum! {
    /// Log level of a component.
    pub enum LogLevel {
        /// Messages that administrators need.
        Normal = "Normal",
        /// Messages that help to debug problems.
        Debug = "Debug",
        /// Messages for each step.
        Trace = "Trace",
        /// All messages, including whole objects.
        TraceAll = "TraceAll",
        /// No level is set; the same as `Normal`.
        Unset = "",
    }
}

/// Desired behaviour of the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigurationSpec {
    /// Management state of the operator: `Managed`, `Unmanaged`, `Force` or `Removed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^(Managed|Unmanaged|Force|Removed)$"))]
    pub management_state: String,
    /// Log level of the controllers, servers and daemons.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "Normal"))]
    pub log_level: Option<LogLevel>,
    /// Log level of the operator itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "Normal"))]
    pub operator_log_level: Option<LogLevel>,
    /// Settings that bypass validation. Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub unsupported_config_overrides: Option<RawConfig>,
    /// Settings that the operator collected from the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub observed_config: Option<RawConfig>,
    /// Any new text here rolls out all components again.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub force_redeployment_reason: String,
    /// Number of failed revisions to keep. -1 for all, 0 or unset for 5.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_revision_limit: i32,
    /// Number of succeeded revisions to keep. -1 for all, 0 or unset for 5.
    #[serde(skip_serializing_if = "is_default")]
    pub succeeded_revision_limit: i32,
    /// Boot images that the operator keeps at the cluster's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images: Option<ManagedBootImages>,
    /// Actions on a node, instead of a reboot, after changes of certain files, units or SSH keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy: Option<NodeDisruptionPolicyConfig>,
    /// Changes to accept although they cannot be applied to running nodes. New nodes get these
    /// changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irreconcilable_validation_overrides: Option<IrreconcilableValidationOverrides>,
    /// Limit on the age of boot images relative to the cluster's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement: Option<BootImageSkewEnforcement>,
}

wire_enum! {
    /// A part of a machine's storage that cannot be changed on a running node.
    pub enum StorageOverride {
        /// Disks and partitions.
        Disks = "Disks",
        /// Filesystems.
        FileSystems = "FileSystems",
        /// RAID arrays.
        Raid = "Raid",
    }
}

/// Changes to accept although they cannot be applied to running nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct IrreconcilableValidationOverrides {
    /// Parts of the storage section whose changes are accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 3))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub storage: Vec<StorageOverride>,
}

/// Observed behaviour of the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigurationStatus {
    /// Generation that the operator last reconciled.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Conditions of the operator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Node disruption policy in effect: the administrator's policy merged over the cluster's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy_status: Option<NodeDisruptionPolicyStatus>,
    /// Boot images that the operator manages, defaults included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images_status: Option<ManagedBootImages>,
    /// Limit on the age of boot images, as it is enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement_status: Option<BootImageSkewEnforcementStatus>,
}

const SKEW_RULES: &[Rule] = &[
    Rule::new(
        r#"self.?status.bootImageSkewEnforcementStatus.mode.orValue("") == 'Automatic' ? self.?spec.managedBootImages.hasValue() || self.?status.managedBootImagesStatus.hasValue() : true"#,
        "when skew enforcement is in Automatic mode, a boot image configuration is required",
    ),
    Rule::new(
        r#"self.?status.bootImageSkewEnforcementStatus.mode.orValue("") == 'Automatic' ? !(self.?spec.managedBootImages.machineManagers.hasValue()) || size(self.spec.managedBootImages.machineManagers) > 0 : true"#,
        "when skew enforcement is in Automatic mode, managedBootImages.machineManagers must not be an empty list",
    ),
    Rule::new(
        r#"self.?status.bootImageSkewEnforcementStatus.mode.orValue("") == 'Automatic' ? !(self.?spec.managedBootImages.machineManagers.hasValue()) || !self.spec.managedBootImages.machineManagers.exists(m, m.resource == 'machinesets' && m.apiGroup == 'machine.openshift.io') || self.spec.managedBootImages.machineManagers.exists(m, m.resource == 'machinesets' && m.apiGroup == 'machine.openshift.io' && m.selection.mode == 'All') : true"#,
        "when skew enforcement is in Automatic mode, any MachineAPI MachineSet MachineManager must use selection mode 'All'",
    ),
    Rule::new(
        r#"self.?status.bootImageSkewEnforcementStatus.mode.orValue("") == 'Automatic' ? !(self.?status.managedBootImagesStatus.machineManagers.hasValue()) || self.status.managedBootImagesStatus.machineManagers.exists(m, m.selection.mode == 'All' && m.resource == 'machinesets' && m.apiGroup == 'machine.openshift.io'): true"#,
        "when skew enforcement is in Automatic mode, managedBootImagesStatus must contain a MachineManager opting in all MachineAPI MachineSets",
    ),
];
