//! vSphere settings of the installer, as part of the Infrastructure copy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::text::{Cidr, IpAddress};

/// Settings on vSphere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::ADDRESSES_ARE_REQUIRED_ONCE_SET))]
pub struct VspherePlatformSpec {
    /// IP addresses of the API server for nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 2))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES))]
    pub api_server_internal_ips: Vec<String>,
    /// Groups of machines that fail together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<VsphereFailureDomain>,
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
    /// Selection of the nodes' IP addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_networking: Option<VsphereNodeNetworking>,
    /// vCenters that the cluster uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 3))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_VCENTERS))]
    pub vcenters: Vec<VsphereCenter>,
}

/// A group of machines that fail together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::VSPHERE_FAILURE_DOMAIN))]
pub struct VsphereFailureDomain {
    /// Name of the failure domain.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Region of the machines.
    #[schemars(length(min = 1, max = 80))]
    pub region: String,
    /// vSphere object that the region corresponds to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_affinity: Option<VsphereRegionAffinity>,
    /// Host name or address of the vCenter.
    #[schemars(length(min = 1, max = 255))]
    pub server: String,
    /// Place in the vCenter in which machines are created.
    pub topology: VsphereTopology,
    /// Zone of the machines.
    #[schemars(length(min = 1, max = 80))]
    pub zone: String,
    /// vSphere object that the zone corresponds to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_affinity: Option<VsphereZoneAffinity>,
}

/// The vSphere object that a region corresponds to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereRegionAffinity {
    /// Type of the object: `ComputeCluster` or `Datacenter`.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["ComputeCluster", "Datacenter"]))]
    pub kind: String,
}

/// The place in a vCenter in which machines are created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereTopology {
    /// Path of the compute cluster.
    #[schemars(length(max = 2048))]
    #[schemars(extend("pattern" = "^/.*?/host/.*?"))]
    pub compute_cluster: String,
    /// Name of the datacenter.
    #[schemars(length(max = 80))]
    pub datacenter: String,
    /// Path of the datastore.
    #[schemars(length(max = 2048))]
    #[schemars(extend("pattern" = "^/.*?/datastore/.*?"))]
    pub datastore: String,
    /// Path of the folder for virtual machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    #[schemars(extend("pattern" = "^/.*?/vm/.*?"))]
    pub folder: String,
    /// Port groups that machines are attached to.
    #[schemars(length(min = 1, max = 10))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub networks: Vec<String>,
    /// Path of the resource pool.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    #[schemars(extend("pattern" = "^/.*?/host/.*?/Resources.*"))]
    pub resource_pool: String,
    /// Path of the template that machines are cloned from.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 2048))]
    #[schemars(extend("pattern" = "^/.*?/vm/.*?"))]
    pub template: String,
}

/// The vSphere object that a zone corresponds to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::VSPHERE_ZONE_AFFINITY))]
pub struct VsphereZoneAffinity {
    /// Host group, for the type `HostGroup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_group: Option<VsphereHostGroup>,
    /// Type of the object: `HostGroup` or `ComputeCluster`.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["HostGroup", "ComputeCluster"]))]
    pub kind: String,
}

/// Groups and rule that tie virtual machines to hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereHostGroup {
    /// Name of the host group.
    #[schemars(length(min = 1, max = 80))]
    pub host_group: String,
    /// Name of the virtual machine group.
    #[schemars(length(min = 1, max = 80))]
    pub vm_group: String,
    /// Name of the rule that ties the two groups.
    #[schemars(length(min = 1, max = 80))]
    pub vm_host_rule: String,
}

/// Selection of the nodes' IP addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereNodeNetworking {
    /// Selection of the external IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<VsphereNetworkSelection>,
    /// Selection of the internal IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal: Option<VsphereNetworkSelection>,
}

/// Selection of one IP address among several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereNetworkSelection {
    /// Networks whose IP addresses are never selected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub exclude_network_subnet_cidr: Vec<String>,
    /// Port group whose IP addresses are selected.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network: String,
    /// Networks whose IP addresses are selected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub network_subnet_cidr: Vec<String>,
}

/// A vCenter and its datacenters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereCenter {
    /// Datacenters in which machines are created.
    #[schemars(length(min = 1))]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub datacenters: Vec<String>,
    /// Port number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32767))]
    pub port: Option<i32>,
    /// Host name or address of the vCenter.
    #[schemars(length(max = 255))]
    pub server: String,
}
