//! Settings of the whole cluster in the API group `config.openshift.io`, each one object with the name
//! `cluster`.

use serde::{Deserialize, Serialize};

use super::foreign_kind;
use crate::{
    controller_config::{
        MtuMigration, ProxyStatus,
        dns::DnsSpec,
        infrastructure::{InfrastructureSpec, InfrastructureStatus},
    },
    kubelet_config::TlsSecurityProfile,
    wire::null_as_default,
};

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

foreign_kind! {
    /// Platform that the cluster runs on.
    pub struct Infrastructure { spec: InfrastructureSpec, status: InfrastructureStatus }
    "config.openshift.io", "v1", "infrastructures", ClusterResourceScope
}

foreign_kind! {
    /// Release of the cluster. The only object has the name `version`.
    pub struct ClusterVersion { spec: NoSpec, status: ClusterVersionStatus }
    "config.openshift.io", "v1", "clusterversions", ClusterResourceScope
}

foreign_kind! {
    /// Settings of machines on bare metal. The only object has the name `provisioning-configuration`.
    pub struct Provisioning { spec: ProvisioningSpec, status: NoStatus }
    "metal3.io", "v1alpha1", "provisionings", ClusterResourceScope
}

/// The members of a Provisioning's spec that the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProvisioningSpec {
    /// URL of the OS image of new machines; that of the release if empty.
    #[serde(rename = "provisioningOSDownloadURL", skip_serializing_if = "String::is_empty")]
    pub provisioning_os_download_url: String,
}

/// A spec of which nothing is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoSpec {}

/// The members of a `ClusterVersion`'s status that the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterVersionStatus {
    /// Releases that were applied, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<AppliedRelease>,
}

/// A release that was applied, or is being applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AppliedRelease {
    /// Progress: `Completed` or `Partial`.
    pub state: String,
    /// Version of the release, such as `4.20.1`.
    pub version: String,
}

foreign_kind! {
    /// Network of the cluster.
    pub struct Network { spec: NetworkSpec, status: NetworkStatus }
    "config.openshift.io", "v1", "networks", ClusterResourceScope
}

foreign_kind! {
    /// Proxy of the cluster.
    pub struct Proxy { spec: ProxySpec, status: ProxyStatus }
    "config.openshift.io", "v1", "proxies", ClusterResourceScope
}

foreign_kind! {
    /// DNS names of the cluster.
    pub struct DNS { spec: DnsSpec, status: NoStatus }
    "config.openshift.io", "v1", "dnses", ClusterResourceScope
}

/// The members of a Network's spec that the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkSpec {
    /// Networks of Services, as CIDRs; the first one is that of the primary family.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub service_network: Vec<String>,
    /// Name of the network plugin.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network_type: String,
}

/// The members of a Network's status that the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Name of the network plugin in use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network_type: String,
    /// Migration in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<NetworkMigration>,
}

/// A migration to another network plugin or to other MTUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkMigration {
    /// Name of the new network plugin; empty if the plugin stays.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network_type: String,
    /// Old and new MTUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<MtuMigration>,
}

/// Desired proxy of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxySpec {
    /// Proxies, and the hosts that are reached without one.
    #[serde(flatten)]
    pub settings: ProxyStatus,
    /// ConfigMap with CA certificates to trust, in the namespace `openshift-config`.
    #[serde(rename = "trustedCA", deserialize_with = "null_as_default")]
    pub trusted_ca: ConfigMapName,
}

/// Name of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigMapName {
    /// The name; empty for no ConfigMap.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
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
