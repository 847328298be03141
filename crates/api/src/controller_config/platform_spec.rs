//! Settings of each platform, as the installer wrote them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::infrastructure::Empty;
use super::infrastructure::PlatformType;
use super::rules;
use super::vsphere::VspherePlatformSpec;
use crate::text::{Cidr, IpAddress};
use crate::wire::is_default;

/// Settings of the platform; only the member of its type is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::PLATFORM_SPEC))]
pub struct PlatformSpec {
    /// On Alibaba Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibaba_cloud: Option<Empty>,
    /// On AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsPlatformSpec>,
    /// On Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<Empty>,
    /// On bare metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baremetal: Option<OnPremPlatformSpec>,
    /// On Equinix Metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equinix_metal: Option<Empty>,
    /// On a platform that OpenShift does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalPlatformSpec>,
    /// On Google Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<Empty>,
    /// On IBM Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ibmcloud: Option<Empty>,
    /// On `KubeVirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<Empty>,
    /// On Nutanix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nutanix: Option<NutanixPlatformSpec>,
    /// On OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OnPremPlatformSpec>,
    /// On oVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovirt: Option<Empty>,
    /// On Power VS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub powervs: Option<PowerVsPlatformSpec>,
    /// Type of the platform.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: PlatformType,
    /// On vSphere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<VspherePlatformSpec>,
}

/// Settings on AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsPlatformSpec {
    /// Replacement addresses of the platform's services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub service_endpoints: Vec<AwsServiceEndpoint>,
}

/// A replacement address for one AWS service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsServiceEndpoint {
    /// Name of the entry.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^[a-z0-9-]+$"))]
    pub name: String,
    /// Address to use instead.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^https://"))]
    pub url: String,
}

/// Addresses and networks of a cluster on one's own machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::ADDRESSES_STAY))]
pub struct OnPremPlatformSpec {
    /// Addresses of the API server as seen from the nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 2))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES))]
    pub api_server_internal_ips: Vec<String>,
    /// Addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 2))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES))]
    pub ingress_ips: Vec<String>,
    /// Networks that the nodes' addresses are in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Cidr>")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_NETWORKS))]
    pub machine_networks: Vec<String>,
}

/// Settings of a platform that OpenShift does not know.
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
    /// Where Prism Central is.
    pub prism_central: NutanixEndpoint,
    /// Prism Elements of the cluster.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub prism_elements: Vec<NutanixPrismElement>,
}

/// Machines that fail together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixFailureDomain {
    /// Cluster that machines are made in.
    pub cluster: NutanixIdentifier,
    /// Name of the entry.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("pattern" = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"))]
    pub name: String,
    /// Subnets that machines are attached to.
    #[schemars(length(min = 1, max = 1))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub subnets: Vec<NutanixIdentifier>,
}

/// A Nutanix object, by name or by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::NUTANIX_IDENTIFIER))]
pub struct NutanixIdentifier {
    /// Name of the entry.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Which of the choices is meant.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["UUID", "Name"]))]
    pub kind: String,
    /// Id of the object.
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

/// A Prism Element and where to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixPrismElement {
    /// Where to reach it.
    pub endpoint: NutanixEndpoint,
    /// Name of the entry.
    #[schemars(length(max = 256))]
    pub name: String,
}

/// Settings on IBM Power Virtual Server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PowerVsPlatformSpec {
    /// Replacement addresses of the platform's services.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub service_endpoints: Vec<PowerVsServiceEndpoint>,
}

/// A replacement address for one Power VS service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PowerVsServiceEndpoint {
    /// Name of the entry.
    #[schemars(extend("enum" = ["CIS", "COS", "COSConfig", "DNSServices", "GlobalCatalog", "GlobalSearch", "GlobalTagging", "HyperProtect", "IAM", "KeyProtect", "Power", "ResourceController", "ResourceManager", "VPC"]))]
    pub name: String,
    /// Address to use instead.
    #[schemars(extend("pattern" = "^https://", "format" = "uri"))]
    pub url: String,
}
