//! Facts about the platform: bare metal and its relatives.

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

/// Facts about the platform; only the member of its type is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PlatformStatus {
    /// On Alibaba Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alibaba_cloud: Option<AlibabaCloudPlatformStatus>,
    /// On AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsPlatformStatus>,
    /// On Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzurePlatformStatus>,
    /// On bare metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baremetal: Option<OnPremPlatformStatus>,
    /// On Equinix Metal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub equinix_metal: Option<VirtualAddresses>,
    /// On a platform that OpenShift does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalPlatformStatus>,
    /// On Google Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gcp: Option<GcpPlatformStatus>,
    /// On IBM Cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ibmcloud: Option<IbmCloudPlatformStatus>,
    /// On `KubeVirt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubevirt: Option<VirtualAddresses>,
    /// On Nutanix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nutanix: Option<NutanixPlatformStatus>,
    /// On OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OpenStackPlatformStatus>,
    /// On oVirt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovirt: Option<OvirtPlatformStatus>,
    /// On Power VS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub powervs: Option<PowerVsPlatformStatus>,
    /// Type of the platform.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: PlatformType,
    /// On vSphere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsphere: Option<OnPremPlatformStatus>,
}

/// Addresses of a cluster on one's own machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OnPremPlatformStatus {
    /// The first of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// Addresses of the API server as seen from the nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// The first of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// Addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Who runs the load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
    /// Networks that the nodes' addresses are in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Cidr>")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_NETWORKS))]
    pub machine_networks: Vec<String>,
    /// Address of the name server on the nodes.
    #[serde(rename = "nodeDNSIP", skip_serializing_if = "String::is_empty")]
    pub node_dns_ip: String,
}

/// Who runs the load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancer {
    /// `OpenShiftManagedDefault` or `UserManaged`.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["OpenShiftManagedDefault", "UserManaged"], "x-default" = "OpenShiftManagedDefault", "x-kubernetes-validations" = rules::LOAD_BALANCER_TYPE_STAYS))]
    pub kind: String,
}

/// Virtual addresses of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VirtualAddresses {
    /// The first of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// The first of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
}

/// Facts about a platform that OpenShift does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::EXTERNAL_PLATFORM_STATUS))]
pub struct ExternalPlatformStatus {
    /// Whether a cloud controller manager runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloud_controller_manager: Option<CloudControllerManagerStatus>,
}

/// Whether a cloud controller manager runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::CLOUD_CONTROLLER_MANAGER_STATUS))]
pub struct CloudControllerManagerStatus {
    /// `External` when one runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(extend("enum" = ["", "External", "None"], "x-kubernetes-validations" = rules::CLOUD_CONTROLLER_MANAGER_STATUS_STATE))]
    pub state: String,
}

/// Addresses of a cluster on Nutanix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NutanixPlatformStatus {
    /// The first of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// Addresses of the API server as seen from the nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// The first of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// Addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Who runs the load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
}

/// Addresses of a cluster on OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OpenStackPlatformStatus {
    /// The first of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// Addresses of the API server as seen from the nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// Name of the cloud.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cloud_name: String,
    /// The first of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// Addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Who runs the load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
    /// Networks that the nodes' addresses are in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Cidr>")]
    #[schemars(length(max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_NETWORKS))]
    pub machine_networks: Vec<String>,
    /// Address of the name server on the nodes.
    #[serde(rename = "nodeDNSIP", skip_serializing_if = "String::is_empty")]
    pub node_dns_ip: String,
}

/// Addresses of a cluster on oVirt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OvirtPlatformStatus {
    /// The first of `apiServerInternalIPs`.
    #[serde(rename = "apiServerInternalIP", skip_serializing_if = "String::is_empty")]
    pub api_server_internal_ip: String,
    /// Addresses of the API server as seen from the nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES_IF_CHANGED))]
    pub api_server_internal_ips: Vec<String>,
    /// The first of `ingressIPs`.
    #[serde(rename = "ingressIP", skip_serializing_if = "String::is_empty")]
    pub ingress_ip: String,
    /// Addresses of the default ingress.
    #[serde(rename = "ingressIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    #[schemars(extend("format" = "ip", "x-kubernetes-list-type" = "set", "x-kubernetes-validations" = rules::INGRESS_ADDRESS_FAMILIES_IF_CHANGED))]
    pub ingress_ips: Vec<String>,
    /// Who runs the load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = serde_json::json!({"type": "OpenShiftManagedDefault"})))]
    pub load_balancer: Option<LoadBalancer>,
    /// Address of the name server on the nodes.
    #[serde(rename = "nodeDNSIP", skip_serializing_if = "String::is_empty")]
    pub node_dns_ip: String,
}
