//! MachineConfigPool: a set of nodes that share one rendered config.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::meta::{LooseCondition, ObjectReference, SelectorSchema};
use crate::schema::Rule;
use crate::text::StreamName;
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

kind! {
    /// A set of nodes that run the same configuration. The pool selects MachineConfigs by label,
    /// merges them, and brings its nodes to the result a few at a time.
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
                "Whether every node runs the pool's config.",
            ),
            Column::text(
                "Updating",
                condition_path!("Updating"),
                "Whether some node does not run the pool's config yet.",
            ),
            Column::text(
                "Degraded",
                condition_path!("Degraded"),
                "Whether something keeps the pool from its config.",
            ),
            Column::number("MachineCount", ".status.machineCount", "Nodes in the pool."),
            Column::number(
                "ReadyMachineCount",
                ".status.readyMachineCount",
                "Nodes that run the pool's config and are ready.",
            ),
            Column::number(
                "UpdatedMachineCount",
                ".status.updatedMachineCount",
                "Nodes that run the pool's config.",
            ),
            Column::number(
                "DegradedMachineCount",
                ".status.degradedMachineCount",
                "Nodes that failed to take their config.",
            ),
            Column::AGE,
        ],
        ..Definition::COMMON
    }
}

/// What a pool is to be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = []))]
pub struct MachineConfigPoolSpec {
    /// Which MachineConfigs make up the pool's config. A custom pool must select those of role
    /// `worker` as well as its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SelectorSchema")]
    pub machine_config_selector: Option<LabelSelector>,
    /// Which nodes belong to the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SelectorSchema")]
    pub node_selector: Option<LabelSelector>,
    /// Stops the roll-out: no node is given a new config while this is true.
    pub paused: bool,
    /// How many nodes may be out of service at a time, as a number or a percentage of the pool.
    /// One when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// The config that nodes are to run. Written by the controller.
    pub configuration: PoolConfiguration,
    /// Sets of images to keep pulled on every node of the pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pinned_image_sets: Vec<PinnedImageSetReference>,
    /// Stream to take OS images from. The cluster's default stream when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<StreamReference>,
}

/// A rendered config and the configs it was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct PoolConfiguration {
    /// The rendered config.
    #[serde(flatten)]
    pub rendered: ObjectReference,
    /// The configs that were merged, in the order of merging.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub source: Vec<ObjectReference>,
}

/// Names a PinnedImageSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PinnedImageSetReference {
    /// Name of the PinnedImageSet.
    #[schemars(length(min = 1, max = 253))]
    #[schemars(extend("pattern" = r"^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*$"))]
    pub name: String,
}

/// Names a stream of the OSImageStream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct StreamReference {
    /// Name of the stream.
    #[schemars(with = "StreamName")]
    pub name: String,
}

/// How far a pool is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = []))]
pub struct MachineConfigPoolStatus {
    /// Generation of the pool that the controller last acted on.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// The config that all nodes last had in common.
    pub configuration: PoolConfiguration,
    /// Nodes in the pool.
    pub machine_count: i32,
    /// Nodes that run the pool's config.
    pub updated_machine_count: i32,
    /// Nodes that run the pool's config and are ready.
    pub ready_machine_count: i32,
    /// Nodes that are updating or not ready.
    pub unavailable_machine_count: i32,
    /// Nodes that failed to take their config.
    pub degraded_machine_count: i32,
    /// Observations, such as `Updated` and `Degraded`.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<LooseCondition>,
    /// When the certificates on the nodes run out.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cert_expirys: Vec<CertExpiry>,
    /// State of the work that runs beside config updates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["poolSynchronizerType"]))]
    pub pool_synchronizers_status: Vec<PoolSynchronizerStatus>,
    /// Stream that the nodes' OS image comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<StreamReference>,
}

/// When one certificate runs out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["bundle", "subject"]))]
pub struct CertExpiry {
    /// Bundle that holds the certificate.
    pub bundle: String,
    /// Subject of the certificate.
    pub subject: String,
    /// Last moment at which it is valid.
    pub expiry: Option<Time>,
}

wire_enum! {
    /// What a pool synchronizer takes care of.
    pub enum PoolSynchronizerType {
        /// Keeping images pulled.
        PinnedImageSets = "PinnedImageSets",
    }
}

/// How far one kind of side work is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = SYNCHRONIZER_RULES))]
pub struct PoolSynchronizerStatus {
    /// What it takes care of.
    #[schemars(extend("maxLength" = 256))]
    pub pool_synchronizer_type: PoolSynchronizerType,
    /// Nodes it manages.
    #[schemars(range(min = 0))]
    pub machine_count: i64,
    /// Nodes that are done.
    #[schemars(range(min = 0))]
    pub updated_machine_count: i64,
    /// Nodes that are ready.
    #[schemars(range(min = 0))]
    pub ready_machine_count: i64,
    /// Nodes that can be worked on.
    #[schemars(range(min = 0))]
    pub available_machine_count: i64,
    /// Nodes that cannot be worked on.
    #[schemars(range(min = 0))]
    pub unavailable_machine_count: i64,
    /// Generation last applied.
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
