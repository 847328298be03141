//! MachineConfigNode: how far the update of one node is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::meta::ConditionSchema;
use crate::schema::Rule;
use crate::text::{LocalDigestedImage, ObjectName, ReleaseBundleName};
use crate::wire::is_default;

kind! {
    /// How far the update of one node is. There is one per node, with the node's name; it is
    /// written by the operator and the node's daemon and meant for reading.
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

/// The node, its pool and the config it is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigNodeSpec {
    /// The node.
    pub node: NameReference,
    /// The pool that the node belongs to.
    pub pool: NameReference,
    /// The config that the node is to run.
    pub config_version: DesiredConfigVersion,
}

/// Names an object of a kind that follows from where the name stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NameReference {
    /// Name of the object.
    #[schemars(with = "ObjectName")]
    pub name: String,
}

/// The config that a node is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct DesiredConfigVersion {
    /// Name of the config.
    #[schemars(with = "ObjectName")]
    pub desired: String,
}

/// How far the node is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineConfigNodeStatus {
    /// Steps of the update, each as a condition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(max = 20))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Generation that the daemon last acted on.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[OBSERVED_GENERATION]))]
    pub observed_generation: i64,
    /// Config that the node runs and config it is to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_version: Option<ConfigVersion>,
    /// State of each set of pinned images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pinned_image_sets: Vec<PinnedImageSetState>,
    /// Parts of the config that could not be applied to the running node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["fieldPath"]))]
    pub irreconcilable_changes: Vec<IrreconcilableChange>,
    /// Releases whose images the node holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal_release_image: Option<NodeReleases>,
}

/// Config that a node runs and config it is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigVersion {
    /// Name of the config it runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "ObjectName")]
    pub current: String,
    /// Name of the config it is to run.
    #[schemars(with = "ObjectName")]
    pub desired: String,
}

/// State of one set of pinned images on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = PINNED_SET_RULES))]
pub struct PinnedImageSetState {
    /// Name of the PinnedImageSet.
    #[schemars(with = "ObjectName")]
    pub name: String,
    /// Generation of the set that is on the node.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[CURRENT_GENERATION]))]
    pub current_generation: i32,
    /// Generation of the set that is to be on the node.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[DESIRED_GENERATION]))]
    pub desired_generation: i32,
    /// Newest generation that could not be brought onto the node.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("minimum" = 1))]
    #[schemars(extend("x-kubernetes-validations" = &[LAST_FAILED_GENERATION]))]
    pub last_failed_generation: i32,
    /// Why it could not.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub last_failed_generation_error: String,
}

/// A change of the config that a running node cannot take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IrreconcilableChange {
    /// Path of the member that changed, from `spec.` on.
    #[schemars(length(min = 1, max = 70))]
    #[schemars(extend("x-kubernetes-validations" = FIELD_PATH_RULES))]
    pub field_path: String,
    /// What changed.
    #[schemars(length(min = 1, max = 4096))]
    pub diff: String,
}

/// Releases whose images a node holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeReleases {
    /// The releases.
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub releases: Vec<NodeRelease>,
}

/// A release that a node holds.
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
    /// How far the release is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(min = 1, max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

const NOT_BACKWARDS: &str = "self >= oldSelf";
const OBSERVED_GENERATION: Rule = Rule::new(NOT_BACKWARDS, "observedGeneration must not decrease");
const CURRENT_GENERATION: Rule = Rule::new(NOT_BACKWARDS, "currentGeneration must not decrease");
const DESIRED_GENERATION: Rule = Rule::new(NOT_BACKWARDS, "desiredGeneration must not decrease");
const LAST_FAILED_GENERATION: Rule =
    Rule::new(NOT_BACKWARDS, "lastFailedGeneration must not decrease");

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
