//! ClusterOperator: the status that `kubectl get co machine-config` prints.
//!
//! OpenShift ships this kind; on a plain Kubernetes cluster our CRD takes its place.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, condition_path, kind};
use crate::meta::TimeSchema;
use crate::raw_config::RawConfig;

kind! {
    /// Status of an operator of the cluster: its availability, its progress and its version.
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
                "True if the components that the operator manages work.",
            ),
            Column::text(
                "Progressing",
                condition_path!("Progressing"),
                "True if the operator is rolling out a change.",
            ),
            Column::text(
                "Degraded",
                condition_path!("Degraded"),
                "True if the operator fails to do its work.",
            ),
            Column::date(
                "Since",
                r#".status.conditions[?(@.type=="Available")].lastTransitionTime"#,
                "Time since availability last changed.",
            ),
            Column::text(
                "Message",
                r#".status.conditions[?(@.type=="Degraded")].message"#,
                "Reason for the failure if the operator is degraded.",
            ),
        ],
        ..Definition::COMMON
    }
}

/// Desired state of the operator; empty, because there is nothing to configure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterOperatorSpec {}

/// Observed state of the operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterOperatorStatus {
    /// Conditions of the operator, such as `Available` and `Degraded`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ClusterOperatorCondition>,
    /// Versions of the operator and of the components that it manages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<OperandVersion>,
    /// Objects to inspect if the operator is degraded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<RelatedObject>,
    /// Further status in the operator's own format.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub extension: Option<RawConfig>,
}

/// One condition of an operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["lastTransitionTime", "status", "type"]))]
pub struct ClusterOperatorCondition {
    /// Type of the condition, such as `Available`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// Time at which the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub last_transition_time: Option<Time>,
    /// Reason for the status, as one word for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason for the status, as a sentence for administrators.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Version of the operator or of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OperandVersion {
    /// Name of the component; `operator` for the operator itself.
    pub name: String,
    /// Version of the component.
    pub version: String,
}

/// An object, or all objects of a resource, that the operator uses or manages.
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
    /// Name of the object; empty for all objects of the resource.
    pub name: String,
}
