//! ControllerConfig: the cluster facts that go into base configs.
//!
//! The operator writes the object, the controllers read it. It carries copies of two cluster
//! objects, Infrastructure and DNS, whose many platform members are passed on as data.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::kind::{Definition, kind};
use crate::meta::{ObjectReference, TimeSchema};
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
    /// Cluster facts that the controllers need to generate base configs. There is one object, named
    /// `machine-config-controller`; the operator writes it.
    pub struct ControllerConfig {
        spec: ControllerConfigSpec,
        status: ControllerConfigStatus,
    }
    Definition { plural: "controllerconfigs", ..Definition::COMMON }
}

/// Cluster facts for the base configs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerConfigSpec {
    /// IP address of the cluster's DNS server.
    #[serde(rename = "clusterDNSIP")]
    pub cluster_dns_ip: String,
    /// Configuration of the cloud provider, as text.
    pub cloud_provider_config: String,
    /// Type of the platform in the old spelling. Superseded by `infra`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// Domain with the SRV records of etcd. No longer used.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub etcd_discovery_domain: String,
    /// CA certificates that verify the API server's serving certificate.
    #[serde(rename = "kubeAPIServerServingCAData")]
    pub kube_api_server_serving_ca_data: Bytes,
    /// Root CA certificates of the cluster.
    #[serde(rename = "rootCAData")]
    pub root_ca_data: Bytes,
    /// CA certificates for connections to the cloud provider.
    #[serde(rename = "cloudProviderCAData")]
    #[schemars(extend("nullable" = true))]
    pub cloud_provider_ca_data: Option<Bytes>,
    /// CA certificates that the administrator added for the whole cluster.
    #[schemars(extend("nullable" = true))]
    pub additional_trust_bundle: Option<Bytes>,
    /// CA certificates of image registries that the administrator added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_user_data: Vec<ImageRegistryBundle>,
    /// CA certificates of image registries that the cluster added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_registry_bundle_data: Vec<ImageRegistryBundle>,
    /// Reference to the Secret with the cluster's pull secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<ObjectReference>,
    /// Pull secret for the image registry inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub internal_registry_pull_secret: Option<Bytes>,
    /// Images of the release that base configs refer to, by name.
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
    /// Proxy settings of the cluster.
    #[schemars(extend("nullable" = true))]
    pub proxy: Option<ProxyStatus>,
    /// Platform that the cluster runs on; a copy of the Infrastructure object.
    #[schemars(extend("nullable" = true))]
    pub infra: Option<Infrastructure>,
    /// DNS settings of the cluster; a copy of the DNS object.
    #[schemars(extend("nullable" = true))]
    pub dns: Option<Dns>,
    /// IP families of the cluster: `IPv4`, `IPv6`, `DualStack` or `DualStackIPv6Primary`.
    pub ip_families: String,
    /// Name of the network plugin.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub network_type: String,
    /// Network changes in progress.
    #[schemars(extend("nullable" = true))]
    pub network: Option<NetworkInfo>,
}

/// CA certificates of one image registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageRegistryBundle {
    /// Name of the file that the certificates are written to.
    pub file: String,
    /// The certificates.
    pub data: Bytes,
}

/// Proxy settings in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyStatus {
    /// Proxy for HTTP, as a URL.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub http_proxy: String,
    /// Proxy for HTTPS, as a URL.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub https_proxy: String,
    /// Hosts and networks that are reached without a proxy, separated by commas.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub no_proxy: String,
}

/// Network changes in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkInfo {
    /// MTU migration in progress.
    #[schemars(extend("nullable" = true))]
    pub mtu_migration: Option<MtuMigration>,
}

/// A migration to other MTUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MtuMigration {
    /// MTU of the pod network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<MtuChange>,
    /// MTU of the machines' interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MtuChange>,
}

/// An MTU before and after the migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MtuChange {
    /// MTU before the migration, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub from: Option<i32>,
    /// MTU after the migration, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub to: Option<i32>,
}

/// Result of generating the base configs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = []))]
pub struct ControllerConfigStatus {
    /// Generation that the controller last reconciled.
    #[serde(skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Conditions of the template controller.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<ControllerConfigCondition>,
    /// Certificates that the controllers distribute to nodes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub controller_certificates: Vec<ControllerCertificate>,
}

/// One condition of the template controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerConfigCondition {
    /// Type of the condition, such as `TemplateControllerCompleted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    pub status: String,
    /// Time at which the status last changed.
    #[schemars(extend("nullable" = true))]
    #[schemars(with = "Option<TimeSchema>")]
    pub last_transition_time: Option<Time>,
    /// Reason for the status, as one word for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason for the status, as a sentence for administrators.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A certificate that the controllers distribute to nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerCertificate {
    /// Subject of the certificate.
    pub subject: String,
    /// Issuer of the certificate.
    pub signer: String,
    /// Start of the certificate's validity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub not_before: Option<Time>,
    /// End of the certificate's validity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub not_after: Option<Time>,
    /// Name of the bundle file that contains the certificate.
    pub bundle_file: String,
}
