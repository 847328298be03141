//! Platform settings of the installer, as part of the Infrastructure copy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::infrastructure::Empty;
use super::infrastructure::PlatformType;
use super::rules;
use super::vsphere::VspherePlatformSpec;
use crate::text::{Cidr, IpAddress};
use crate::wire::is_default;

/// Settings of the platform. Only the member that matches `type` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::PLATFORM_SPEC))]
pub struct PlatformSpec {
    /// Settings of a cluster on Alibaba Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibaba_cloud: Option<Empty>,
    /// Settings of a cluster on AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsPlatformSpec>,
    /// Settings of a cluster on Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<Empty>,
    /// Settings of a cluster on bare metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baremetal: Option<OnPremPlatformSpec>,
    /// Settings of a cluster on Equinix Metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equinix_metal: Option<Empty>,
    /// Settings of a cluster on a platform without support in OpenShift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalPlatformSpec>,
    /// Settings of a cluster on Google Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<Empty>,
    /// Settings of a cluster on IBM Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ibmcloud: Option<Empty>,
    /// Settings of a cluster on `KubeVirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<Empty>,
    /// Settings of a cluster on Nutanix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nutanix: Option<NutanixPlatformSpec>,
    /// Settings of a cluster on OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OnPremPlatformSpec>,
    /// Settings of a cluster on oVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovirt: Option<Empty>,
    /// Settings of a cluster on Power VS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub powervs: Option<PowerVsPlatformSpec>,
    /// Type of the platform.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: PlatformType,
    /// Settings of a cluster on vSphere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<VspherePlatformSpec>,
}

/// Settings on AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsPlatformSpec {
    /// Service endpoints that replace the platform's defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub service_endpoints: Vec<AwsServiceEndpoint>,
}

/// A service endpoint that replaces the default of one AWS service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsServiceEndpoint {
    /// Name of the service.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^[a-z0-9-]+$"))]
    pub name: String,
    /// URL that replaces the default endpoint.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^https://"))]
    pub url: String,
}

/// Addresses and networks of a cluster on the user's own machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::ADDRESSES_ARE_REQUIRED_ONCE_SET))]
pub struct OnPremPlatformSpec {
    /// IP addresses of the API server for nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 2))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES))]
    pub api_server_internal_ips: Vec<String>,
    /// IP addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 2))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES))]
    pub ingress_ips: Vec<String>,
    /// Networks of the nodes' IP addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Cidr>")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_NETWORKS))]
    pub machine_networks: Vec<String>,
}

/// Settings of a platform without support in OpenShift.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ExternalPlatformSpec {
    /// Name of the platform.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("x-default" = "Unknown", "x-kubernetes-validations" = rules::EXTERNAL_PLATFORM_SPEC_PLATFORM_NAME))]
    pub platform_name: String,
}

/// Settings on Nutanix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixPlatformSpec {
    /// Groups of machines that fail together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<NutanixFailureDomain>,
    /// Address of Prism Central.
    pub prism_central: NutanixEndpoint,
    /// Prism Elements of the cluster.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub prism_elements: Vec<NutanixPrismElement>,
}

/// A group of machines that fail together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixFailureDomain {
    /// Nutanix cluster in which machines are created.
    pub cluster: NutanixIdentifier,
    /// Name of the failure domain.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("pattern" = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"))]
    pub name: String,
    /// Subnets that machines are attached to.
    #[schemars(length(min = 1, max = 1))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subnets: Vec<NutanixIdentifier>,
}

/// A Nutanix object, given by name or by UUID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::NUTANIX_IDENTIFIER))]
pub struct NutanixIdentifier {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Type of the identifier: `UUID` or `Name`.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["UUID", "Name"]))]
    pub kind: String,
    /// UUID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uuid: String,
}

/// Address and port of a Nutanix service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixEndpoint {
    /// Host name or address.
    #[schemars(length(max = 256))]
    pub address: String,
    /// Port number.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// A Prism Element and its address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixPrismElement {
    /// Address of the Prism Element.
    pub endpoint: NutanixEndpoint,
    /// Name of the Prism Element.
    #[schemars(length(max = 256))]
    pub name: String,
}

/// Settings on IBM Power Virtual Server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PowerVsPlatformSpec {
    /// Service endpoints that replace the platform's defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub service_endpoints: Vec<PowerVsServiceEndpoint>,
}

/// A service endpoint that replaces the default of one Power VS service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PowerVsServiceEndpoint {
    /// Name of the service.
    #[schemars(extend("enum" = ["CIS", "COS", "COSConfig", "DNSServices", "GlobalCatalog", "GlobalSearch", "GlobalTagging", "HyperProtect", "IAM", "KeyProtect", "Power", "ResourceController", "ResourceManager", "VPC"]))]
    pub name: String,
    /// URL that replaces the default endpoint.
    #[schemars(extend("pattern" = "^https://", "format" = "uri"))]
    pub url: String,
}
