//! The Infrastructure object of the cluster, of which a ControllerConfig carries a copy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::platform_spec::PlatformSpec;
use super::platform_status::PlatformStatus;
use crate::annotation::Topology;
use crate::meta::AnyObject;
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

/// Platform that the cluster runs on, as an embedded object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-embedded-resource" = true))]
pub struct Infrastructure {
    /// API group and version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Metadata of the object.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "AnyObject")]
    pub metadata: ObjectMeta,
    /// Platform settings of the installer.
    pub spec: InfrastructureSpec,
    /// Observed facts about the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<InfrastructureStatus>,
}

wire_enum! {
    /// Type of the platform that a cluster runs on.
    pub enum PlatformType {
        /// No type is set.
        Unset = "",
        /// Amazon Web Services.
        Aws = "AWS",
        /// Microsoft Azure.
        Azure = "Azure",
        /// The user's own machines, provisioned by the cluster.
        BareMetal = "BareMetal",
        /// Google Cloud.
        Gcp = "GCP",
        /// libvirt.
        Libvirt = "Libvirt",
        /// OpenStack.
        OpenStack = "OpenStack",
        /// Machines without any platform integration.
        None = "None",
        /// vSphere.
        VSphere = "VSphere",
        /// oVirt.
        OVirt = "oVirt",
        /// IBM Cloud.
        IbmCloud = "IBMCloud",
        /// `KubeVirt`.
        KubeVirt = "KubeVirt",
        /// Equinix Metal.
        EquinixMetal = "EquinixMetal",
        /// IBM Power Virtual Server.
        PowerVs = "PowerVS",
        /// Alibaba Cloud.
        AlibabaCloud = "AlibabaCloud",
        /// Nutanix.
        Nutanix = "Nutanix",
        /// A platform without support in OpenShift.
        External = "External",
    }
}

/// Platform settings of the installer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureSpec {
    /// Reference to the cloud provider's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_config: Option<ConfigMapFileReference>,
    /// Settings of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_spec: Option<PlatformSpec>,
}

/// A reference to a key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ConfigMapFileReference {
    /// Key in the ConfigMap.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Name of the ConfigMap.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Observed facts about the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// URL of the API server for nodes and components of the cluster.
    #[serde(rename = "apiServerInternalURI", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_uri: String,
    /// URL of the API server for users.
    #[serde(rename = "apiServerURL", skip_serializing_if = "String::is_empty")]
    pub api_server_url: String,
    /// Topology of the control plane, such as `HighlyAvailable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "HighlyAvailable"))]
    pub control_plane_topology: Option<Topology>,
    /// CPU partitioning for management workloads: `None` or `AllNodes`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["None", "AllNodes"], "x-default" = "None"))]
    pub cpu_partitioning: String,
    /// Domain with the SRV records of etcd. No longer used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub etcd_discovery_domain: String,
    /// Unique name of the cluster, used in the tags of cloud resources.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub infrastructure_name: String,
    /// Topology of the infrastructure nodes, such as `HighlyAvailable`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["HighlyAvailable", "SingleReplica"], "x-default" = "HighlyAvailable"))]
    pub infrastructure_topology: String,
    /// Type of the platform. Superseded by `platformStatus.type`.
    #[serde(skip_serializing_if = "is_default")]
    pub platform: PlatformType,
    /// Facts about the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_status: Option<PlatformStatus>,
}

/// An object without members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Empty {}
