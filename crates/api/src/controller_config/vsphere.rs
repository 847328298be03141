//! Settings of vSphere, the platform with the most of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::text::{Cidr, IpAddress};

/// Settings on vSphere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::ADDRESSES_STAY))]
pub struct VspherePlatformSpec {
    /// Addresses of the API server as seen from the nodes.
    #[serde(rename = "apiServerInternalIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<IpAddress>")]
    #[schemars(length(max = 2))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::API_ADDRESS_FAMILIES))]
    pub api_server_internal_ips: Vec<String>,
    /// Groups of machines that fail together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<VsphereFailureDomain>,
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
    /// Which addresses of a node are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_networking: Option<VsphereNodeNetworking>,
    /// vCenters that the cluster uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 3))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = rules::DISTINCT_VCENTERS))]
    pub vcenters: Vec<VsphereCenter>,
}

/// Machines that fail together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::VSPHERE_FAILURE_DOMAIN))]
pub struct VsphereFailureDomain {
    /// Name of the entry.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Region of the machines.
    #[schemars(length(min = 1, max = 80))]
    pub region: String,
    /// What the region stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_affinity: Option<VsphereRegionAffinity>,
    /// Host name or address of the vCenter.
    #[schemars(length(min = 1, max = 255))]
    pub server: String,
    /// Where machines are made.
    pub topology: VsphereTopology,
    /// Zone of the machines.
    #[schemars(length(min = 1, max = 80))]
    pub zone: String,
    /// What the zone stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_affinity: Option<VsphereZoneAffinity>,
}

/// What a region stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereRegionAffinity {
    /// Which of the choices is meant.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["ComputeCluster", "Datacenter"]))]
    pub kind: String,
}

/// Where in a vCenter machines are made.
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
    /// Path of the folder for machines.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 2048))]
    #[schemars(extend("pattern" = "^/.*?/vm/.*?"))]
    pub folder: String,
    /// Port groups to attach machines to.
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

/// What a zone stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rules::VSPHERE_ZONE_AFFINITY))]
pub struct VsphereZoneAffinity {
    /// Group of hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_group: Option<VsphereHostGroup>,
    /// Which of the choices is meant.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["HostGroup", "ComputeCluster"]))]
    pub kind: String,
}

/// Groups and rule that tie machines to hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereHostGroup {
    /// Group of hosts.
    #[schemars(length(min = 1, max = 80))]
    pub host_group: String,
    /// Group of machines.
    #[schemars(length(min = 1, max = 80))]
    pub vm_group: String,
    /// Rule that ties the two.
    #[schemars(length(min = 1, max = 80))]
    pub vm_host_rule: String,
}

/// Which addresses of a node are its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereNodeNetworking {
    /// The address seen from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external: Option<VsphereNetworkSelection>,
    /// The address seen from inside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub internal: Option<VsphereNetworkSelection>,
}

/// How to pick an address among several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereNetworkSelection {
    /// Networks never to take an address from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub exclude_network_subnet_cidr: Vec<String>,
    /// Port group to take an address from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network: String,
    /// Networks to take an address from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub network_subnet_cidr: Vec<String>,
}

/// A vCenter and its datacenters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct VsphereCenter {
    /// Datacenters in which machines are made.
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
