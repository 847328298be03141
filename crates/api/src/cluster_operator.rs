//! ClusterOperator: the line that `kubectl get co machine-config` prints.
//!
//! OpenShift brings this kind along; on a plain Kubernetes cluster our CRD stands in for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::raw_config::RawConfig;

kind! {
    /// How an operator of the cluster fares: whether it works, what it is doing, which version it
    /// is at.
    pub struct ClusterOperator {
        spec: ClusterOperatorSpec,
        status: ClusterOperatorStatus,
    }
    Definition {
        group: "config.openshift.io",
        plural: "clusteroperators",
        short_names: &["co"],
        labels: &[],
        columns: &[
            Column::text(
                "Version",
                r#".status.versions[?(@.name=="operator")].version"#,
                "Version that the operator has reached.",
            ),
            Column::text(
                "Available",
                condition_path!("Available"),
                "Whether what it manages works.",
            ),
            Column::text(
                "Progressing",
                condition_path!("Progressing"),
                "Whether it is changing something.",
            ),
            Column::text(
                "Degraded",
                condition_path!("Degraded"),
                "Whether it fails to do its work.",
            ),
            Column::date(
                "Since",
                r#".status.conditions[?(@.type=="Available")].lastTransitionTime"#,
                "When availability last changed.",
            ),
            Column::text(
                "Message",
                r#".status.conditions[?(@.type=="Degraded")].message"#,
                "Why it fails, when it does.",
            ),
        ],
        ..Definition::COMMON
    }
}

/// Nothing to configure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterOperatorSpec {}

/// How the operator fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterOperatorStatus {
    /// Observations, such as `Available` and `Degraded`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ClusterOperatorCondition>,
    /// Versions of the operator and of what it manages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<OperandVersion>,
    /// Objects to look at when something is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<RelatedObject>,
    /// More to say, in the operator's own format.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub extension: Option<RawConfig>,
}

/// One observation about an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["lastTransitionTime", "status", "type"]))]
pub struct ClusterOperatorCondition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    pub status: String,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One word for programs: why the status is what it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for people: why the status is what it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Version of one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OperandVersion {
    /// Name of the thing; `operator` for the operator itself.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// An object, or all objects of a resource, that the operator has to do with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RelatedObject {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object; empty for all.
    pub name: String,
}
