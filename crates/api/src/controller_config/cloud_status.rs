//! Status of clusters on public clouds, as part of the Infrastructure copy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::platform_spec::AwsServiceEndpoint;
use super::platform_spec::PowerVsServiceEndpoint;
use super::rules;
use crate::text::IpAddress;

/// Facts about a cluster on Alibaba Cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AlibabaCloudPlatformStatus {
    /// Region of the machines.
    #[schemars(extend("pattern" = "^[0-9A-Za-z-]+$"))]
    pub region: String,
    /// Resource group of the cluster.
    #[serde(rename = "resourceGroupID", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("pattern" = "^(rg-[0-9A-Za-z]+)?$"))]
    pub resource_group_id: String,
    /// Tags that are set on all created resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub resource_tags: Vec<AlibabaCloudTag>,
}

/// A tag on Alibaba Cloud resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AlibabaCloudTag {
    /// Key of the tag.
    #[schemars(length(min = 1, max = 128))]
    pub key: String,
    /// Value of the tag.
    #[schemars(length(min = 1, max = 128))]
    pub value: String,
}

/// Facts about a cluster on AWS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsPlatformStatus {
    /// DNS of the cluster's load balancers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true, "x-default" = serde_json::json!({"dnsType": "PlatformDefault"})))]
    pub cloud_load_balancer_config: Option<CloudLoadBalancerConfig>,
    /// IP families of the cluster's network.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["IPv4", "DualStackIPv6Primary", "DualStackIPv4Primary"], "x-default" = "IPv4", "x-kubernetes-validations" = rules::IP_FAMILY_IS_IMMUTABLE))]
    pub ip_family: String,
    /// Region of the machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// Tags that are set on all created resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 25))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_tags: Vec<AwsTag>,
    /// Service endpoints that replace the platform's defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub service_endpoints: Vec<AwsServiceEndpoint>,
}

/// DNS of the cluster's load balancers: resolved by the platform or by the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::CLOUD_LOAD_BALANCER_CONFIG))]
pub struct CloudLoadBalancerConfig {
    /// Load balancer addresses, if the cluster hosts its own DNS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_hosted: Option<CloudLoadBalancerAddresses>,
    /// Host of the DNS records: `PlatformDefault` or `ClusterHosted`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["ClusterHosted", "PlatformDefault"], "x-default" = "PlatformDefault", "x-kubernetes-validations" = rules::DNS_TYPE_IS_IMMUTABLE))]
    pub dns_type: String,
}

/// Addresses of the load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CloudLoadBalancerAddresses {
    /// Addresses of the internal API load balancer.
    #[serde(rename = "apiIntLoadBalancerIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 16))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set"))]
    pub api_int_load_balancer_ips: Vec<String>,
    /// Addresses of the API load balancer.
    #[serde(rename = "apiLoadBalancerIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 16))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set"))]
    pub api_load_balancer_ips: Vec<String>,
    /// Addresses of the ingress load balancer.
    #[serde(rename = "ingressLoadBalancerIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 16))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set"))]
    pub ingress_load_balancer_ips: Vec<String>,
}

/// A tag on AWS resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AwsTag {
    /// Key of the tag.
    #[schemars(length(min = 1, max = 128))]
    #[schemars(extend("x-kubernetes-validations" = rules::AWS_TAG_KEY))]
    pub key: String,
    /// Value of the tag.
    #[schemars(length(min = 1, max = 256))]
    #[schemars(extend("x-kubernetes-validations" = rules::AWS_TAG_VALUE))]
    pub value: String,
}

/// Facts about a cluster on Azure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::AZURE_PLATFORM_STATUS))]
pub struct AzurePlatformStatus {
    /// Address of the resource manager on Azure Stack.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arm_endpoint: String,
    /// DNS of the cluster's load balancers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"dnsType": "PlatformDefault"})))]
    pub cloud_load_balancer_config: Option<CloudLoadBalancerConfig>,
    /// Name of the cloud.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["", "AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud", "AzureGermanCloud", "AzureStackCloud"]))]
    pub cloud_name: String,
    /// Resource group of the network.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network_resource_group_name: String,
    /// Resource group of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_group_name: String,
    /// Tags that are set on all created resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::TAGS_ARE_IMMUTABLE))]
    pub resource_tags: Vec<AzureTag>,
}

/// A tag on Azure resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct AzureTag {
    /// Key of the tag.
    #[schemars(length(min = 1, max = 128))]
    #[schemars(extend("pattern" = "^[a-zA-Z]([0-9A-Za-z_.-]*[0-9A-Za-z_])?$"))]
    pub key: String,
    /// Value of the tag.
    #[schemars(length(min = 1, max = 256))]
    #[schemars(extend("pattern" = "^[0-9A-Za-z_.=+-@]+$"))]
    pub value: String,
}

/// Facts about a cluster on Google Cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::GCP_PLATFORM_STATUS))]
pub struct GcpPlatformStatus {
    /// DNS of the cluster's load balancers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true, "x-default" = serde_json::json!({"dnsType": "PlatformDefault"})))]
    pub cloud_load_balancer_config: Option<CloudLoadBalancerConfig>,
    /// Project of the cluster.
    #[serde(rename = "projectID", skip_serializing_if = "String::is_empty")]
    pub project_id: String,
    /// Region of the machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// Labels that are set on all created resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"], "x-kubernetes-validations" = rules::LABELS_ARE_IMMUTABLE))]
    pub resource_labels: Vec<GcpLabel>,
    /// Tags that are set on all created resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"], "x-kubernetes-validations" = rules::TAGS_ARE_IMMUTABLE))]
    pub resource_tags: Vec<GcpTag>,
}

/// A label on Google Cloud resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GcpLabel {
    /// Key of the label.
    #[schemars(length(min = 1, max = 63))]
    #[schemars(extend("pattern" = "^[a-z][0-9a-z_-]{0,62}$", "x-kubernetes-validations" = rules::GCP_LABEL_KEY))]
    pub key: String,
    /// Value of the label.
    #[schemars(length(min = 1, max = 63))]
    #[schemars(extend("pattern" = "^[0-9a-z_-]{1,63}$"))]
    pub value: String,
}

/// A tag on Google Cloud resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct GcpTag {
    /// Key of the tag.
    #[schemars(length(min = 1, max = 63))]
    #[schemars(extend("pattern" = "^[a-zA-Z0-9]([0-9A-Za-z_.-]{0,61}[a-zA-Z0-9])?$"))]
    pub key: String,
    /// Organisation or project that owns the tag.
    #[serde(rename = "parentID")]
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("pattern" = "(^[1-9][0-9]{0,31}$)|(^[a-z][a-z0-9-]{4,28}[a-z0-9]$)"))]
    pub parent_id: String,
    /// Value of the tag.
    #[schemars(length(min = 1, max = 63))]
    #[schemars(extend("pattern" = r"^[a-zA-Z0-9]([0-9A-Za-z_.@%=+:,*#&()\[\]{}\-\s]{0,61}[a-zA-Z0-9])?$"))]
    pub value: String,
}

/// Facts about a cluster on IBM Cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IbmCloudPlatformStatus {
    /// CRN of the Internet Services instance that holds the public DNS zone.
    #[serde(rename = "cisInstanceCRN", skip_serializing_if = "String::is_empty")]
    pub cis_instance_crn: String,
    /// CRN of the DNS Services instance that holds the private DNS zone.
    #[serde(rename = "dnsInstanceCRN", skip_serializing_if = "String::is_empty")]
    pub dns_instance_crn: String,
    /// Location of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub location: String,
    /// Type of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_type: String,
    /// Resource group of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_group_name: String,
    /// Service endpoints that replace the platform's defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub service_endpoints: Vec<IbmCloudServiceEndpoint>,
}

/// A service endpoint that replaces the default of one IBM Cloud service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct IbmCloudServiceEndpoint {
    /// Name of the service.
    #[schemars(extend("enum" = ["CIS", "COS", "COSConfig", "DNSServices", "GlobalCatalog", "GlobalSearch", "GlobalTagging", "HyperProtect", "IAM", "KeyProtect", "ResourceController", "ResourceManager", "VPC"]))]
    pub name: String,
    /// URL that replaces the default endpoint.
    #[schemars(length(max = 300))]
    #[schemars(extend("x-kubernetes-validations" = rules::IBM_CLOUD_SERVICE_ENDPOINT_URL))]
    pub url: String,
}

/// Facts about a cluster on Power VS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::POWER_VS_PLATFORM_STATUS))]
pub struct PowerVsPlatformStatus {
    /// CRN of the Internet Services instance that holds the public DNS zone.
    #[serde(rename = "cisInstanceCRN", skip_serializing_if = "String::is_empty")]
    pub cis_instance_crn: String,
    /// CRN of the DNS Services instance that holds the private DNS zone.
    #[serde(rename = "dnsInstanceCRN", skip_serializing_if = "String::is_empty")]
    pub dns_instance_crn: String,
    /// Region of the machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// Resource group of the cluster.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 40))]
    #[schemars(extend("pattern" = "^[a-zA-Z0-9-_ ]+$", "x-kubernetes-validations" = rules::POWER_VS_PLATFORM_STATUS_RESOURCE_GROUP))]
    pub resource_group: String,
    /// Service endpoints that replace the platform's defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub service_endpoints: Vec<PowerVsServiceEndpoint>,
    /// Zone of the machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
}
