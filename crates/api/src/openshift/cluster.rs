//! Settings of the whole cluster in the API group `config.openshift.io`, each one object with the name
//! `cluster`.

use serde::{Deserialize, Serialize};

use super::foreign_kind;
use crate::kubelet_config::TlsSecurityProfile;

foreign_kind! {
    /// Settings of all nodes.
    pub struct Node { spec: NodeSpec, status: NoStatus }
    "config.openshift.io", "v1", "nodes", ClusterResourceScope
}

foreign_kind! {
    /// Features that are enabled or disabled in the cluster.
    pub struct FeatureGate { spec: FeatureGateSpec, status: FeatureGateStatus }
    "config.openshift.io", "v1", "featuregates", ClusterResourceScope
}

foreign_kind! {
    /// Settings of the API server that nodes follow.
    pub struct APIServer { spec: ApiServerSpec, status: NoStatus }
    "config.openshift.io", "v1", "apiservers", ClusterResourceScope
}

/// A status of which the controller reads nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStatus {}

/// The members of a Node's spec that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSpec {
    /// Version of control groups: `v2`, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cgroup_mode: String,
    /// Reaction time to unreachable workers: `Default`, `MediumUpdateAverageReaction`,
    /// `LowUpdateSlowReaction`, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worker_latency_profile: String,
}

/// The members of a FeatureGate's spec that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FeatureGateSpec {
    /// Name of the set of features.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub feature_set: String,
    /// Features of the set `CustomNoUpgrade`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_no_upgrade: Option<CustomFeatures>,
}

/// Features by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomFeatures {
    /// Enabled features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<String>,
    /// Disabled features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<String>,
}

/// The features of each version of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FeatureGateStatus {
    /// Features by version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub feature_gates: Vec<VersionFeatures>,
}

/// The features of one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VersionFeatures {
    /// Version of the cluster.
    pub version: String,
    /// Enabled features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<Feature>,
    /// Disabled features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<Feature>,
}

/// A feature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Feature {
    /// Name of the feature.
    pub name: String,
}

/// The members of an APIServer's spec that the controller reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// TLS versions and ciphers of the cluster's servers. `Intermediate` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_security_profile: Option<TlsSecurityProfile>,
}
