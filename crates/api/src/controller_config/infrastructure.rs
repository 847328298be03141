//! The Infrastructure object that a ControllerConfig carries a copy of.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::platform_spec::PlatformSpec;
use super::platform_status::PlatformStatus;
use crate::annotation::Topology;
use crate::meta::AnyObject;
use crate::wire::is_default;
use crate::wire_enum::wire_enum;

/// What the cluster runs on, as an embedded object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-embedded-resource" = true))]
pub struct Infrastructure {
    /// Group and version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Name and the like.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(with = "AnyObject")]
    pub metadata: ObjectMeta,
    /// What the installer was told.
    pub spec: InfrastructureSpec,
    /// What the cluster runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<InfrastructureStatus>,
}

wire_enum! {
    /// What kind of machines a cluster runs on.
    pub enum PlatformType {
        /// Not said.
        Unset = "",
        /// Amazon Web Services.
        Aws = "AWS",
        /// Microsoft Azure.
        Azure = "Azure",
        /// Machines of one's own, provisioned by the cluster.
        BareMetal = "BareMetal",
        /// Google Cloud.
        Gcp = "GCP",
        /// libvirt.
        Libvirt = "Libvirt",
        /// OpenStack.
        OpenStack = "OpenStack",
        /// Machines that the cluster knows nothing about.
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
        /// A platform that OpenShift does not know.
        External = "External",
    }
}

/// What the installer was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureSpec {
    /// Where the cloud provider's own config is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_config: Option<ConfigMapFileReference>,
    /// Settings of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_spec: Option<PlatformSpec>,
}

/// A key of a ConfigMap.
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

/// What the cluster runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// Address of the API server for nodes and components.
    #[serde(rename = "apiServerInternalURI", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_uri: String,
    /// Address of the API server for users.
    #[serde(rename = "apiServerURL", skip_serializing_if = "String::is_empty")]
    pub api_server_url: String,
    /// How many control plane nodes to expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = "HighlyAvailable"))]
    pub control_plane_topology: Option<Topology>,
    /// Whether CPUs are set aside for management work.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["None", "AllNodes"], "x-default" = "None"))]
    pub cpu_partitioning: String,
    /// Domain with SRV records of etcd. No longer used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub etcd_discovery_domain: String,
    /// Unique name that cloud resources are tagged with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub infrastructure_name: String,
    /// How many nodes for infrastructure work to expect.
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

/// No settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Empty {}
