//! Status of clusters on any platform, as part of the Infrastructure copy; the types of the public
//! clouds are in `cloud_status`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cloud_status::AlibabaCloudPlatformStatus;
use super::cloud_status::AwsPlatformStatus;
use super::cloud_status::AzurePlatformStatus;
use super::cloud_status::GcpPlatformStatus;
use super::cloud_status::IbmCloudPlatformStatus;
use super::cloud_status::PowerVsPlatformStatus;
use super::infrastructure::PlatformType;
use super::rules;
use crate::text::Cidr;
use crate::wire::is_default;

/// Facts about the platform. Only the member that matches `type` is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PlatformStatus {
    /// Facts about a cluster on Alibaba Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibaba_cloud: Option<AlibabaCloudPlatformStatus>,
    /// Facts about a cluster on AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsPlatformStatus>,
    /// Facts about a cluster on Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzurePlatformStatus>,
    /// Facts about a cluster on bare metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baremetal: Option<OnPremPlatformStatus>,
    /// Facts about a cluster on Equinix Metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equinix_metal: Option<VirtualAddresses>,
    /// Facts about a cluster on a platform without support in OpenShift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalPlatformStatus>,
    /// Facts about a cluster on Google Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<GcpPlatformStatus>,
    /// Facts about a cluster on IBM Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ibmcloud: Option<IbmCloudPlatformStatus>,
    /// Facts about a cluster on `KubeVirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<VirtualAddresses>,
    /// Facts about a cluster on Nutanix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nutanix: Option<NutanixPlatformStatus>,
    /// Facts about a cluster on OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OpenStackPlatformStatus>,
    /// Facts about a cluster on oVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovirt: Option<OvirtPlatformStatus>,
    /// Facts about a cluster on Power VS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub powervs: Option<PowerVsPlatformStatus>,
    /// Type of the platform.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: PlatformType,
    /// Facts about a cluster on vSphere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<OnPremPlatformStatus>,
}

/// Addresses of a cluster on the user's own machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OnPremPlatformStatus {
    /// First address of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// IP addresses of the API server for nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// First address of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// IP addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Load balancer of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
    /// Networks of the nodes' IP addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Cidr>")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_NETWORKS))]
    pub machine_networks: Vec<String>,
    /// IP address of the DNS server on the nodes.
    #[serde(rename = "nodeDNSIP", skip_serializing_if = "String::is_empty")]
    pub node_dns_ip: String,
}

/// Load balancer of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Operator of the load balancer: `OpenShiftManagedDefault` or `UserManaged`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["OpenShiftManagedDefault", "UserManaged"], "x-default" = "OpenShiftManagedDefault", "x-kubernetes-validations" = rules::LOAD_BALANCER_TYPE_IS_IMMUTABLE))]
    pub kind: String,
}

/// Virtual IP addresses of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualAddresses {
    /// First address of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// First address of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
}

/// Facts about a platform without support in OpenShift.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::EXTERNAL_PLATFORM_STATUS))]
pub struct ExternalPlatformStatus {
    /// State of the cloud controller manager.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_controller_manager: Option<CloudControllerManagerStatus>,
}

/// State of the cloud controller manager.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::CLOUD_CONTROLLER_MANAGER_STATUS))]
pub struct CloudControllerManagerStatus {
    /// `External` if a cloud controller manager runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["", "External", "None"], "x-kubernetes-validations" = rules::CLOUD_CONTROLLER_MANAGER_STATUS_STATE))]
    pub state: String,
}

/// Addresses of a cluster on Nutanix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixPlatformStatus {
    /// First address of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// IP addresses of the API server for nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// First address of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// IP addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Load balancer of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
}

/// Addresses of a cluster on OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenStackPlatformStatus {
    /// First address of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// IP addresses of the API server for nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// Name of the cloud.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cloud_name: String,
    /// First address of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// IP addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Load balancer of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
    /// Networks of the nodes' IP addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Cidr>")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_NETWORKS))]
    pub machine_networks: Vec<String>,
    /// IP address of the DNS server on the nodes.
    #[serde(rename = "nodeDNSIP", skip_serializing_if = "String::is_empty")]
    pub node_dns_ip: String,
}

/// Addresses of a cluster on oVirt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OvirtPlatformStatus {
    /// First address of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// IP addresses of the API server for nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// First address of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// IP addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Load balancer of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
    /// IP address of the DNS server on the nodes.
    #[serde(rename = "nodeDNSIP", skip_serializing_if = "String::is_empty")]
    pub node_dns_ip: String,
}
