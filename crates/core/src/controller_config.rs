//! The ControllerConfig of a cluster, from the cluster's own facts.
//!
//! On OpenShift these are the objects of `config.openshift.io` and the ConfigMaps and Secrets that its
//! operators publish. On another Kubernetes they are the Services of API server and DNS, the documents
//! of the ConfigMap `cluster-settings`, and flags.

mod images;
mod merge;
mod network;
mod pull_secret;
pub mod source;
#[cfg(test)]
mod tests;
mod trust;
mod user_data;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_api::{
    Bytes,
    controller_config::{
        self as spec, ControllerConfigSpec, PlatformType, ProxyStatus,
        infrastructure::InfrastructureStatus, platform_status::PlatformStatus,
    },
    label,
    meta::ObjectReference,
    openshift::{DNS, Image, Infrastructure, Network, Proxy},
};

use self::source::{CLOUD_CONFIG, ConfigMaps, Source};
pub use self::{
    images::{ImagesError, ReleaseImages, release_images},
    merge::merge,
    network::Services,
    pull_secret::Credentials,
    trust::{RegistryAuthorities, kubeconfig_data, merged_registry_ca, server_ca},
    user_data::{machine_host, user_data},
};

/// Kind of cluster that facts are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A cluster with an Infrastructure object.
    OpenShift,
    /// Any other Kubernetes.
    #[default]
    Other,
}

/// Facts about a cluster. They are not printable, because credentials are among them.
#[derive(Clone, Default)]
pub struct Facts {
    /// Namespace of the installation; the standard one if `None`.
    pub namespace: Option<String>,
    /// Kind of cluster.
    pub origin: Origin,
    /// Platform.
    pub infrastructure: Option<Infrastructure>,
    /// Network.
    pub network: Option<Network>,
    /// Proxy.
    pub proxy: Option<Proxy>,
    /// DNS names.
    pub dns: Option<DNS>,
    /// Settings for registries.
    pub image: Option<Image>,
    /// Contents of ConfigMaps.
    pub config_maps: ConfigMaps,
    /// Registry credentials.
    pub credentials: Credentials,
    /// Addresses of Services.
    pub services: Services,
    /// CA certificates of the API server, as PEM.
    pub authorities: String,
    /// URL of the API server for nodes of a cluster without an Infrastructure object; may be empty.
    pub api_server_url: String,
    /// Images that base configs refer to.
    pub images: BTreeMap<String, String>,
    /// OS image of the release; may be empty.
    pub os_image: String,
    /// Extensions image that fits the OS image; may be empty.
    pub os_extensions_image: String,
}

/// The members of a ControllerConfig that follow from facts.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// The members.
    pub spec: ControllerConfigSpec,
    /// Kind of cluster.
    pub origin: Origin,
    /// Whether the address of the DNS server is that of a Service, not one that a setting names.
    pub is_dns_derived: bool,
    /// Faults that do not keep the ControllerConfig from being written.
    pub warnings: Vec<String>,
}

/// A fact that is missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// An object does not exist.
    #[error("{object} does not exist or cannot be read, and {wanted_by} needs it; {fix}")]
    Missing {
        /// The object.
        object: String,
        /// Reason why the object is needed.
        wanted_by: String,
        /// Way out.
        fix: String,
    },
    /// A field is invalid.
    #[error("{object}: {field}: {reason}")]
    Field {
        /// The object.
        object: String,
        /// The field.
        field: &'static str,
        /// Description of the fault.
        reason: String,
    },
    /// A ConfigMap has no valid CA certificates. Compat: the first part is the reference's text.
    #[error(
        "configmap {config_map} doesn't have a valid PEM bundle; put certificates in PEM format into its \
         key ca-bundle.crt, or delete it"
    )]
    Pem {
        /// The ConfigMap.
        config_map: Source,
    },
}

/// Platforms whose cloud provider needs a configuration.
const CLOUDS: [PlatformType; 4] =
    [PlatformType::Azure, PlatformType::Gcp, PlatformType::OpenStack, PlatformType::VSphere];

impl Facts {
    /// Returns the namespace of the installation.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(label::NAMESPACE)
    }

    /// Returns the ConfigMap with additional CA certificates that the Proxy names.
    #[must_use]
    pub fn proxy_ca(&self) -> Option<Source> {
        self.named(&self.proxy.as_ref()?.spec.trusted_ca.name)
    }

    /// Returns the ConfigMap with CA certificates of registries that the Image object names.
    #[must_use]
    pub fn registry_ca(&self) -> Option<Source> {
        self.named(&self.image.as_ref()?.spec.additional_trusted_ca.name)
    }

    /// Returns a ConfigMap that the administrator names: in the namespace `openshift-config`, on a
    /// cluster without it in that of the operator.
    fn named(&self, name: &str) -> Option<Source> {
        let namespace = match self.origin {
            Origin::OpenShift => source::CONFIG,
            Origin::Other => self.namespace(),
        };
        (!name.is_empty()).then(|| Source {
            namespace: namespace.to_owned().into(),
            name: name.to_owned().into(),
        })
    }

    /// Returns the ConfigMaps that the facts are read from, beside the one of the settings.
    #[must_use]
    pub fn sources(&self) -> Vec<Source> {
        let own = self.namespace();
        let fixed = match self.origin {
            Origin::OpenShift => [&source::OPENSHIFT[..], &[source::kubeconfig_data(own)]].concat(),
            Origin::Other => Vec::new(),
        };
        let named = self.proxy_ca().into_iter().chain(self.registry_ca());
        fixed.into_iter().chain([source::server_ca(own)]).chain(named).collect()
    }

    /// Returns true if the installation of an OpenShift cluster is complete. Better than the reference, for
    /// which the ConfigMap only has to exist.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        self.config_maps.key(&source::BOOTSTRAP, "status") == Some(b"complete")
    }

    fn base_domain(&self) -> &str {
        self.dns.as_ref().map_or("", |dns| dns.spec.base_domain.as_str())
    }
}

/// Returns the ControllerConfig of a cluster.
pub fn wanted(facts: &Facts) -> Result<Wanted, FactsError> {
    let is_openshift = facts.origin == Origin::OpenShift;
    let found = match &facts.network {
        Some(found) => network::of_network(found)?,
        None if is_openshift => {
            return Err(FactsError::Missing {
                object: "Network cluster (config.openshift.io/v1)".to_owned(),
                wanted_by: "spec.clusterDNSIP of the ControllerConfig".to_owned(),
                fix: "create it with spec.serviceNetwork".to_owned(),
            });
        }
        None => network::of_services(&facts.services),
    };
    let infra = infrastructure(facts);
    let status = infra.as_ref().and_then(|infra| infra.status.as_ref());
    let kind = status.and_then(|status| status.platform_status.as_ref());
    let kind = kind.map_or(PlatformType::None, |platform| platform.kind.clone());
    let cloud = cloud_config(facts, infra.as_ref(), &kind)?;
    let registries = RegistryAuthorities::new(facts);
    let spec = ControllerConfigSpec {
        cluster_dns_ip: found.dns_ip,
        cloud_provider_config: cloud.config,
        platform: if infra.is_some() { kind.as_str().to_lowercase() } else { String::new() },
        etcd_discovery_domain: status
            .map(|status| status.etcd_discovery_domain.clone())
            .unwrap_or_default(),
        kube_api_server_serving_ca_data: trust::kubelet_ca(facts),
        root_ca_data: trust::root_ca(facts),
        cloud_provider_ca_data: cloud.authorities,
        additional_trust_bundle: trust::additional_bundle(facts)?,
        image_registry_bundle_user_data: registries.user,
        image_registry_bundle_data: registries.managed,
        pull_secret: is_openshift.then(pull_secret_reference),
        internal_registry_pull_secret: internal_registry(facts)?,
        images: facts.images.clone(),
        base_os_container_image: facts.os_image.clone(),
        base_os_extensions_container_image: facts.os_extensions_image.clone(),
        proxy: proxy(facts),
        infra,
        dns: facts.dns.as_ref().map(dns),
        ip_families: found.ip_families,
        network_type: found.network_type,
        network: found.network,
        ..ControllerConfigSpec::default()
    };
    Ok(Wanted {
        spec,
        origin: facts.origin,
        is_dns_derived: facts.network.is_none(),
        warnings: warnings(facts),
    })
}

impl Wanted {
    /// Returns the spec of a new ControllerConfig.
    #[must_use]
    pub fn new_spec(&self) -> ControllerConfigSpec {
        let mut spec = self.spec.clone();
        let or = |text: &mut String, default: &str| {
            if text.is_empty() {
                default.clone_into(text);
            }
        };
        or(&mut spec.platform, "none");
        or(&mut spec.ip_families, "IPv4");
        spec
    }
}

fn warnings(facts: &Facts) -> Vec<String> {
    let missing = facts.registry_ca().filter(|named| facts.config_maps.get(named).is_none());
    let text = |named: Source| {
        format!(
            "ConfigMap {named}, which spec.additionalTrustedCA of Image cluster names, does not exist \
             or cannot be read"
        )
    };
    missing.map(text).into_iter().collect()
}

fn internal_registry(facts: &Facts) -> Result<Option<Bytes>, FactsError> {
    if !facts.is_installed() {
        return Ok(None);
    }
    pull_secret::internal_registry(&facts.credentials, facts.namespace(), facts.base_domain())
}

fn pull_secret_reference() -> ObjectReference {
    ObjectReference {
        namespace: source::CONFIG.to_owned(),
        name: "pull-secret".to_owned(),
        ..ObjectReference::default()
    }
}

/// Returns the proxy in effect: the status on OpenShift, else the spec, which no other component
/// checks. `None` if the cluster has no Proxy.
fn proxy(facts: &Facts) -> Option<ProxyStatus> {
    let found = facts.proxy.as_ref()?;
    let is_other = facts.origin == Origin::Other;
    let in_effect = if is_other && found.status == ProxyStatus::default() {
        found.spec.settings.clone()
    } else {
        found.status.clone()
    };
    // An empty Proxy among the settings clears a proxy that was set before.
    (is_other || in_effect != ProxyStatus::default()).then_some(in_effect)
}

/// Returns the copy of the Infrastructure object. A cluster without one has a copy only if a setting
/// names the URL of the API server: the config server finds it in other ways, and templates tell by
/// the copy if the cluster is OpenShift.
fn infrastructure(facts: &Facts) -> Option<spec::Infrastructure> {
    let url = || facts.api_server_url.clone();
    let (spec, mut status) = match &facts.infrastructure {
        Some(found) => (found.spec.clone(), found.status.clone()),
        None if facts.api_server_url.is_empty() => return None,
        None => Default::default(),
    };
    if status.api_server_internal_uri.is_empty() {
        status.api_server_internal_uri = url();
    }
    let kind = platform_type(&status);
    status.platform_status.get_or_insert_with(PlatformStatus::default).kind = kind;
    Some(spec::Infrastructure {
        api_version: "config.openshift.io/v1".to_owned(),
        kind: "Infrastructure".to_owned(),
        metadata: cluster_metadata(),
        spec,
        status: Some(status),
    })
}

/// Returns the type of the platform. Old clusters have it in a deprecated member.
fn platform_type(status: &InfrastructureStatus) -> PlatformType {
    let current = status.platform_status.as_ref().map(|platform| platform.kind.clone());
    let set = |kind: &PlatformType| *kind != PlatformType::Unset;
    let current = current.filter(set).or_else(|| Some(status.platform.clone()).filter(set));
    current.unwrap_or(PlatformType::None)
}

fn dns(found: &DNS) -> spec::Dns {
    spec::Dns {
        api_version: "config.openshift.io/v1".to_owned(),
        kind: "DNS".to_owned(),
        metadata: cluster_metadata(),
        spec: found.spec.clone(),
        status: None,
    }
}

/// Returns the metadata of a copy. Versions and times are left out: they would differ between the
/// installer's copy and that of the cluster.
fn cluster_metadata() -> ObjectMeta {
    ObjectMeta { name: Some(label::CLUSTER.to_owned()), ..ObjectMeta::default() }
}

#[derive(Default)]
struct CloudConfig {
    config: String,
    authorities: Option<Bytes>,
}

fn cloud_config(
    facts: &Facts,
    infra: Option<&spec::Infrastructure>,
    kind: &PlatformType,
) -> Result<CloudConfig, FactsError> {
    let is_named = infra
        .and_then(|infra| infra.spec.cloud_config.as_ref())
        .is_some_and(|named| !named.name.is_empty());
    let is_openshift = facts.origin == Origin::OpenShift;
    let is_cloud = CLOUDS.contains(kind) && is_openshift;
    let Some(map) = facts.config_maps.get(&CLOUD_CONFIG) else {
        if is_cloud || (is_named && is_openshift) {
            let wanted_by = if is_cloud {
                format!("platform {}", kind.as_str())
            } else {
                "spec.cloudConfig of Infrastructure cluster".to_owned()
            };
            return Err(FactsError::Missing {
                object: format!("ConfigMap {CLOUD_CONFIG}"),
                wanted_by,
                fix: "create it with the key cloud.conf".to_owned(),
            });
        }
        return Ok(CloudConfig::default());
    };
    let config = map.get("cloud.conf").map(|text| String::from_utf8_lossy(text).into_owned());
    if config.is_none() && is_cloud {
        return Err(FactsError::Field {
            object: format!("ConfigMap {CLOUD_CONFIG}"),
            field: "cloud.conf",
            reason: format!("the key is missing, and platform {} needs it", kind.as_str()),
        });
    }
    let authorities = map.get("ca-bundle.pem").filter(|bundle| !bundle.is_empty());
    Ok(CloudConfig {
        config: config.unwrap_or_default(),
        authorities: authorities.map(|bundle| bundle.clone().into()),
    })
}
