//! MachineConfigPool: a set of nodes that run one rendered config.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::meta::{IntOrStringSchema, LooseCondition, ObjectReference, SelectorSchema, TimeSchema};
use crate::schema::Rule;
use crate::text::StreamName;
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

kind! {
    /// A set of nodes that run the same configuration. The pool selects MachineConfigs by label;
    /// the controller merges them into a rendered config and updates the pool's nodes to it a few
    /// at a time.
    pub struct MachineConfigPool {
        spec: MachineConfigPoolSpec,
        status: MachineConfigPoolStatus,
    }
    Definition {
        plural: "machineconfigpools",
        short_names: &["mcp"],
        columns: &[
            Column::text("Config", ".status.configuration.name", ""),
            Column::text(
                "Updated",
                condition_path!("Updated"),
                "True if all nodes run the pool's config.",
            ),
            Column::text(
                "Updating",
                condition_path!("Updating"),
                "True if some nodes do not run the pool's config yet.",
            ),
            Column::text(
                "Degraded",
                condition_path!("Degraded"),
                "True if an error keeps the pool from its config.",
            ),
            Column::number("MachineCount", ".status.machineCount", "Number of nodes in the pool."),
            Column::number(
                "ReadyMachineCount",
                ".status.readyMachineCount",
                "Number of nodes that run the pool's config and are ready.",
            ),
            Column::number(
                "UpdatedMachineCount",
                ".status.updatedMachineCount",
                "Number of nodes that run the pool's config.",
            ),
            Column::number(
                "DegradedMachineCount",
                ".status.degradedMachineCount",
                "Number of nodes that failed to apply their config.",
            ),
            Column::AGE,
        ],
        ..Definition::COMMON
    }
}

/// Desired state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = []))]
pub struct MachineConfigPoolSpec {
    /// Label selector of the MachineConfigs that are merged into the pool's config. A custom pool
    /// must select the MachineConfigs of the role `worker` as well as its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SelectorSchema")]
    pub machine_config_selector: Option<LabelSelector>,
    /// Label selector of the nodes that belong to the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SelectorSchema")]
    pub node_selector: Option<LabelSelector>,
    /// True if the rollout is paused. No node of a paused pool is assigned a new config.
    pub paused: bool,
    /// Maximum number of nodes that may be unavailable at a time, as a number or a percentage of
    /// the pool. Defaults to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<IntOrStringSchema>")]
    pub max_unavailable: Option<IntOrString>,
    /// Rendered config that the nodes are to run. Written by the controller.
    pub configuration: PoolConfiguration,
    /// PinnedImageSets whose images all nodes of the pool keep pulled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pinned_image_sets: Vec<PinnedImageSetReference>,
    /// OS image stream of the pool. The cluster's default stream if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<StreamReference>,
}

/// A rendered config and the MachineConfigs that were merged into it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct PoolConfiguration {
    /// Reference to the rendered config.
    #[serde(flatten)]
    pub rendered: ObjectReference,
    /// MachineConfigs that were merged, in the order of the merge.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub source: Vec<ObjectReference>,
}

/// A reference to a PinnedImageSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PinnedImageSetReference {
    /// Name of the PinnedImageSet.
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("pattern" = r"^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*$"))]
    pub name: String,
}

/// A reference to a stream of the OSImageStream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct StreamReference {
    /// Name of the stream.
    #[schemars(with = "StreamName")]
    pub name: String,
}

/// Observed state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = []))]
pub struct MachineConfigPoolStatus {
    /// Generation of the pool that the controller last reconciled.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Last config that all nodes of the pool ran.
    pub configuration: PoolConfiguration,
    /// Number of nodes in the pool.
    pub machine_count: i32,
    /// Number of nodes that run the pool's config.
    pub updated_machine_count: i32,
    /// Number of nodes that run the pool's config and are ready.
    pub ready_machine_count: i32,
    /// Number of nodes that are updating or not ready.
    pub unavailable_machine_count: i32,
    /// Number of nodes that failed to apply their config.
    pub degraded_machine_count: i32,
    /// Conditions of the pool, such as `Updated` and `Degraded`.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<LooseCondition>,
    /// Expiry dates of the certificates on the nodes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cert_expirys: Vec<CertExpiry>,
    /// State of the pool synchronizers, which do work besides config updates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["poolSynchronizerType"]))]
    pub pool_synchronizers_status: Vec<PoolSynchronizerStatus>,
    /// Stream that the nodes' OS image comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<StreamReference>,
}

/// Expiry date of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["bundle", "subject"]))]
pub struct CertExpiry {
    /// Name of the bundle that contains the certificate.
    pub bundle: String,
    /// Subject of the certificate.
    pub subject: String,
    /// End of the certificate's validity.
    #[schemars(with = "Option<TimeSchema>")]
    pub expiry: Option<Time>,
}

wire_enum! {
    /// Work of a pool synchronizer.
    pub enum PoolSynchronizerType {
        /// Pulling and pinning images.
        PinnedImageSets = "PinnedImageSets",
    }
}

/// State of one pool synchronizer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = SYNCHRONIZER_RULES))]
pub struct PoolSynchronizerStatus {
    /// Work of the synchronizer.
    #[schemars(extend("maxLength" = 256))]
    pub pool_synchronizer_type: PoolSynchronizerType,
    /// Number of nodes that the synchronizer manages.
    #[schemars(range(min = 0))]
    pub machine_count: i64,
    /// Number of nodes that are up to date.
    #[schemars(range(min = 0))]
    pub updated_machine_count: i64,
    /// Number of nodes that are ready.
    #[schemars(range(min = 0))]
    pub ready_machine_count: i64,
    /// Number of nodes that are available to the synchronizer.
    #[schemars(range(min = 0))]
    pub available_machine_count: i64,
    /// Number of nodes that are not available to the synchronizer.
    #[schemars(range(min = 0))]
    pub unavailable_machine_count: i64,
    /// Generation that was last applied.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(range(min = 0))]
    #[schemars(extend("x-kubernetes-validations" = &[GENERATION_RULE]))]
    pub observed_generation: i64,
}

const GENERATION_RULE: Rule = Rule::new(
    "self >= oldSelf || (self == 0 && oldSelf > 0)",
    "observedGeneration must not move backwards except to zero",
);

const SYNCHRONIZER_RULES: &[Rule] = &[
    Rule::new(
        "self.machineCount >= self.updatedMachineCount",
        "machineCount must be greater than or equal to updatedMachineCount",
    ),
    Rule::new(
        "self.machineCount >= self.availableMachineCount",
        "machineCount must be greater than or equal to availableMachineCount",
    ),
    Rule::new(
        "self.machineCount >= self.unavailableMachineCount",
        "machineCount must be greater than or equal to unavailableMachineCount",
    ),
    Rule::new(
        "self.machineCount >= self.readyMachineCount",
        "machineCount must be greater than or equal to readyMachineCount",
    ),
    Rule::new(
        "self.availableMachineCount >= self.readyMachineCount",
        "availableMachineCount must be greater than or equal to readyMachineCount",
    ),
];
