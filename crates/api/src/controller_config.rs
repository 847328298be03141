//! ControllerConfig: everything about the cluster that goes into base configs.
//!
//! The operator writes it, the controllers read it. It carries copies of two cluster objects,
//! Infrastructure and DNS, whose many platform members are data to us.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::kind::{Definition, kind};
use crate::meta::ObjectReference;
use crate::wire::is_default;

pub mod cloud_status;
pub mod dns;
pub mod infrastructure;
pub mod platform_spec;
pub mod platform_status;
mod rules;
pub mod vsphere;

pub use dns::Dns;
pub use infrastructure::{Infrastructure, PlatformType};

kind! {
    /// What the controllers need to know of the cluster to make its base configs. There is one,
    /// named `machine-config-controller`, and the operator writes it.
    pub struct ControllerConfig {
        spec: ControllerConfigSpec,
        status: ControllerConfigStatus,
    }
    Definition { plural: "controllerconfigs", ..Definition::COMMON }
}

/// The cluster as base configs see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerConfigSpec {
    /// Address of the cluster's name server.
    #[serde(rename = "clusterDNSIP")]
    pub cluster_dns_ip: String,
    /// Config of the cloud provider, as text.
    pub cloud_provider_config: String,
    /// Type of the platform, in the old spelling. Superseded by `infra`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// Domain with SRV records of etcd. No longer used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub etcd_discovery_domain: String,
    /// Certificates that the API server's own certificate is checked with.
    #[serde(rename = "kubeAPIServerServingCAData")]
    pub kube_api_server_serving_ca_data: Bytes,
    /// Root certificates of the cluster.
    #[serde(rename = "rootCAData")]
    pub root_ca_data: Bytes,
    /// Certificates for talking to the cloud provider.
    #[serde(rename = "cloudProviderCAData")]
    #[schemars(extend("nullable" = true))]
    pub cloud_provider_ca_data: Option<Bytes>,
    /// Certificates that the administrator added for the whole cluster.
    #[schemars(extend("nullable" = true))]
    pub additional_trust_bundle: Option<Bytes>,
    /// Certificates of image registries, from the administrator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_user_data: Vec<ImageRegistryBundle>,
    /// Certificates of image registries, from the cluster itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_data: Vec<ImageRegistryBundle>,
    /// Where the pull secret of the cluster is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<ObjectReference>,
    /// Pull secret for the registry inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub internal_registry_pull_secret: Option<Bytes>,
    /// Images of the release, by name, that base configs refer to.
    pub images: BTreeMap<String, String>,
    /// OS image of the release.
    #[serde(rename = "baseOSContainerImage")]
    pub base_os_container_image: String,
    /// Image with the extension packages for the OS image.
    #[serde(rename = "baseOSExtensionsContainerImage", skip_serializing_if = "String::is_empty")]
    pub base_os_extensions_container_image: String,
    /// OS image in the old format.
    #[serde(rename = "osImageURL", skip_serializing_if = "String::is_empty")]
    pub os_image_url: String,
    /// Image of the release that the cluster was installed with.
    pub release_image: String,
    /// Proxy of the cluster.
    #[schemars(extend("nullable" = true))]
    pub proxy: Option<ProxyStatus>,
    /// What the cluster runs on.
    #[schemars(extend("nullable" = true))]
    pub infra: Option<Infrastructure>,
    /// The cluster's DNS settings.
    #[schemars(extend("nullable" = true))]
    pub dns: Option<Dns>,
    /// IP families of the cluster: `IPv4`, `IPv6`, `DualStack` or `DualStackIPv6Primary`.
    pub ip_families: String,
    /// Name of the network plugin.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network_type: String,
    /// Changes of the network that are under way.
    #[schemars(extend("nullable" = true))]
    pub network: Option<NetworkInfo>,
}

/// Certificates for one registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageRegistryBundle {
    /// Name of the file to write them to.
    pub file: String,
    /// The certificates.
    pub data: Bytes,
}

/// The proxy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyStatus {
    /// Proxy for HTTP.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub http_proxy: String,
    /// Proxy for HTTPS.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub https_proxy: String,
    /// Hosts and networks to reach without a proxy, separated by commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub no_proxy: String,
}

/// Changes of the network that are under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkInfo {
    /// Change of the packet size limit.
    #[schemars(extend("nullable" = true))]
    pub mtu_migration: Option<MtuMigration>,
}

/// Change of the packet size limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MtuMigration {
    /// For the pods' network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<MtuChange>,
    /// For the machines' interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MtuChange>,
}

/// One packet size limit, before and after.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MtuChange {
    /// Bytes before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub from: Option<i32>,
    /// Bytes after.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub to: Option<i32>,
}

/// What the template controller made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = []))]
pub struct ControllerConfigStatus {
    /// Generation that the controller last acted on.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// How the template controller fares.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ControllerConfigCondition>,
    /// Certificates that the controllers put on nodes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub controller_certificates: Vec<ControllerCertificate>,
}

/// One observation about the template controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerConfigCondition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    pub status: String,
    /// When the status last changed.
    #[schemars(extend("nullable" = true))]
    pub last_transition_time: Option<Time>,
    /// One word for programs: why the status is what it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence for people: why the status is what it is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One certificate that is put on nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerCertificate {
    /// Subject of the certificate.
    pub subject: String,
    /// Who signed it.
    pub signer: String,
    /// First moment at which it is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Last moment at which it is valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Time>,
    /// File that holds it.
    pub bundle_file: String,
}
