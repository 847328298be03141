//! MachineConfigNode: progress of the config update on one node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::meta::ConditionSchema;
use crate::schema::Rule;
use crate::text::{LocalDigestedImage, ObjectName, ReleaseBundleName};
use crate::wire::is_default;

kind! {
    /// Progress of the config update on one node. There is one object per node, with the node's
    /// name. The operator and the node's daemon write it; administrators only read it.
    pub struct MachineConfigNode {
        spec: MachineConfigNodeSpec,
        status: MachineConfigNodeStatus,
    }
    Definition {
        plural: "machineconfignodes",
        rules: &[Rule::new(
            "self.metadata.name == self.spec.node.name",
            "spec.node.name should match metadata.name",
        )],
        columns: &[
            Column::text("PoolName", ".spec.pool.name", ""),
            Column::text("DesiredConfig", ".spec.configVersion.desired", ""),
            Column::text("CurrentConfig", ".status.configVersion.current", ""),
            Column::text("Updated", condition_path!("Updated"), ""),
            Column::AGE,
            Column::text("UpdatePrepared", condition_path!("UpdatePrepared"), "").wide(),
            Column::text("UpdateExecuted", condition_path!("UpdateExecuted"), "").wide(),
            Column::text(
                "UpdatePostActionComplete",
                condition_path!("UpdatePostActionComplete"),
                "",
            )
            .wide(),
            Column::text("UpdateComplete", condition_path!("UpdateComplete"), "").wide(),
            Column::text("Resumed", condition_path!("Resumed"), "").wide(),
            Column::text("UpdatedFilesAndOS", condition_path!("AppliedFilesAndOS"), "").wide(),
            Column::text("CordonedNode", condition_path!("Cordoned"), "").wide(),
            Column::text("DrainedNode", condition_path!("Drained"), "").wide(),
            Column::text("RebootedNode", condition_path!("RebootedNode"), "").wide(),
            Column::text("UncordonedNode", condition_path!("Uncordoned"), "").wide(),
        ],
        ..Definition::COMMON
    }
}

/// The node, its pool and its desired config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigNodeSpec {
    /// Reference to the node.
    pub node: NameReference,
    /// Reference to the pool that the node belongs to.
    pub pool: NameReference,
    /// Config that the node is to run.
    pub config_version: DesiredConfigVersion,
}

/// A reference by name to an object whose kind follows from the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NameReference {
    /// Name of the object.
    #[schemars(with = "ObjectName")]
    pub name: String,
}

/// Config that a node is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DesiredConfigVersion {
    /// Name of the desired config.
    #[schemars(with = "ObjectName")]
    pub desired: String,
}

/// Observed progress of the node's update.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigNodeStatus {
    /// Steps of the update, one condition each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 20))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation that the daemon last reconciled.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[OBSERVED_GENERATION]))]
    pub observed_generation: i64,
    /// Current and desired config of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<ConfigVersion>,
    /// State of each PinnedImageSet on the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pinned_image_sets: Vec<PinnedImageSetState>,
    /// Changes of the config that cannot be applied to the running node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["fieldPath"]))]
    pub irreconcilable_changes: Vec<IrreconcilableChange>,
    /// Releases whose images the node stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_release_image: Option<NodeReleases>,
}

/// Current and desired config of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigVersion {
    /// Name of the config that the node runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "ObjectName")]
    pub current: String,
    /// Name of the config that the node is to run.
    #[schemars(with = "ObjectName")]
    pub desired: String,
}

/// State of one PinnedImageSet on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = PINNED_SET_RULES))]
pub struct PinnedImageSetState {
    /// Name of the PinnedImageSet.
    #[schemars(with = "ObjectName")]
    pub name: String,
    /// Generation of the PinnedImageSet whose images are on the node.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[CURRENT_GENERATION]))]
    pub current_generation: i32,
    /// Generation of the PinnedImageSet whose images are to be on the node.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[DESIRED_GENERATION]))]
    pub desired_generation: i32,
    /// Newest generation whose images could not be pulled.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[LAST_FAILED_GENERATION]))]
    pub last_failed_generation: i32,
    /// Error of the last failed generation.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub last_failed_generation_error: String,
}

/// A change of the config that cannot be applied to a running node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IrreconcilableChange {
    /// Path of the changed member, starting with `spec.`.
    #[schemars(length(min = 1, max = 70))]
    #[schemars(extend("x-kubernetes-validations" = FIELD_PATH_RULES))]
    pub field_path: String,
    /// Difference between the old and the new value.
    #[schemars(length(min = 1, max = 4096))]
    pub diff: String,
}

/// Releases whose images a node stores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeReleases {
    /// Releases on the node.
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub releases: Vec<NodeRelease>,
}

/// A release whose images a node stores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeRelease {
    /// Name of the release bundle.
    #[schemars(with = "ReleaseBundleName")]
    pub name: String,
    /// Image of the release, by digest.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "LocalDigestedImage")]
    pub image: String,
    /// Conditions of the release, such as `Available`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(min = 1, max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

const NEVER_DECREASES: &str = "self >= oldSelf";
const OBSERVED_GENERATION: Rule =
    Rule::new(NEVER_DECREASES, "observedGeneration must not decrease");
const CURRENT_GENERATION: Rule = Rule::new(NEVER_DECREASES, "currentGeneration must not decrease");
const DESIRED_GENERATION: Rule = Rule::new(NEVER_DECREASES, "desiredGeneration must not decrease");
const LAST_FAILED_GENERATION: Rule =
    Rule::new(NEVER_DECREASES, "lastFailedGeneration must not decrease");

const PINNED_SET_RULES: &[Rule] = &[
    Rule::new(
        "has(self.desiredGeneration) && has(self.currentGeneration) ? self.desiredGeneration >= self.currentGeneration : true",
        "desired generation must be greater than or equal to the current generation",
    ),
    Rule::new(
        "has(self.lastFailedGeneration) && has(self.desiredGeneration) ? self.desiredGeneration >= self.lastFailedGeneration : true",
        "desired generation must be greater than or equal to the last failed generation",
    ),
    Rule::new(
        "has(self.lastFailedGeneration) ? has(self.lastFailedGenerationError) : true",
        "last failed generation error must be defined on image pull and pin failure",
    ),
];

const FIELD_PATH_RULES: &[Rule] = &[
    Rule::new("self.startsWith('spec.')", "The fieldPath must start with `spec.`"),
    Rule::new(
        r"self.matches('^[\\da-zA-Z\\.\\[\\]]+$')",
        "The fieldPath must consist only of alphanumeric characters, brackets [] and dots ('.').",
    ),
];
