//! MachineConfiguration: how this operator itself is to behave.

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
    /// How the machine config operator behaves: what a config change may interrupt on a node, which
    /// boot images are kept current, how much is logged. There is one, named `cluster`.
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
    /// How much is logged.
    pub enum LogLevel {
        /// What an administrator needs.
        Normal = "Normal",
        /// What helps when something is wrong.
        Debug = "Debug",
        /// Each step.
        Trace = "Trace",
        /// Everything, whole objects included.
        TraceAll = "TraceAll",
        /// Not said; the same as `Normal`.
        Unset = "",
    }
}

/// What is wanted of the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigurationSpec {
    /// Whether the operator manages the cluster: `Managed`, `Unmanaged`, `Force` or `Removed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^(Managed|Unmanaged|Force|Removed)$"))]
    pub management_state: String,
    /// How much the controllers, servers and daemons log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "Normal"))]
    pub log_level: Option<LogLevel>,
    /// How much the operator itself logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "Normal"))]
    pub operator_log_level: Option<LogLevel>,
    /// Settings that bypass validation. Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub unsupported_config_overrides: Option<RawConfig>,
    /// Settings that the operator gathered by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub observed_config: Option<RawConfig>,
    /// Any new text here rolls everything out again.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub force_redeployment_reason: String,
    /// How many failed revisions to keep. -1 for all, 0 or unset for 5.
    #[serde(skip_serializing_if = "is_default")]
    pub failed_revision_limit: i32,
    /// How many good revisions to keep. -1 for all, 0 or unset for 5.
    #[serde(skip_serializing_if = "is_default")]
    pub succeeded_revision_limit: i32,
    /// Which boot images the operator keeps at the version of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images: Option<ManagedBootImages>,
    /// What to do on a node when certain files, units or SSH keys change, instead of a reboot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy: Option<NodeDisruptionPolicyConfig>,
    /// Which changes to let through although running nodes cannot take them. New nodes get them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub irreconcilable_validation_overrides: Option<IrreconcilableValidationOverrides>,
    /// How far boot images may lag behind the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_image_skew_enforcement: Option<BootImageSkewEnforcement>,
}

wire_enum! {
    /// A part of a machine's storage that cannot change on a running node.
    pub enum StorageOverride {
        /// Disks and partitions.
        Disks = "Disks",
        /// File systems.
        FileSystems = "FileSystems",
        /// RAID arrays.
        Raid = "Raid",
    }
}

/// Which changes to let through although running nodes cannot take them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct IrreconcilableValidationOverrides {
    /// Parts of the storage section that may change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 3))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub storage: Vec<StorageOverride>,
}

/// What the operator does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigurationStatus {
    /// Generation that the operator last acted on.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Whether anything is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The disruption policy in force: the cluster's own and the administrator's, merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_disruption_policy_status: Option<NodeDisruptionPolicyStatus>,
    /// The boot images in the operator's care, defaults included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_boot_images_status: Option<ManagedBootImages>,
    /// How far boot images may lag behind, as it is enforced.
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
