//! Facts about the platform: the folders of templates that apply, and values for templates.

use std::borrow::Cow;

use mco_api::{
    annotation::Topology,
    controller_config::{
        ControllerConfigSpec, PlatformType,
        cloud_status::CloudLoadBalancerConfig,
        infrastructure::InfrastructureStatus,
        platform_status::{LoadBalancer, PlatformStatus},
    },
};
use serde::Serialize;

use super::TemplateError;

/// Folder of templates for every platform.
const BASE: &str = "_base";
/// Folder of templates for clusters on the user's own machines.
const ON_PREM: &str = "on-prem";
/// Folder of templates for clouds whose DNS names the cluster itself serves.
const OWN_DNS: &str = "cloud-platform-alt-dns";
const SINGLE_NODE: &str = "sno";
const TWO_NODES: &str = "two-node-with-fencing";

fn status(spec: &ControllerConfigSpec) -> Option<&InfrastructureStatus> {
    spec.infra.as_ref()?.status.as_ref()
}

/// Returns the topology of the control plane.
pub(super) fn topology(spec: &ControllerConfigSpec) -> Option<&Topology> {
    status(spec)?.control_plane_topology.as_ref()
}

fn platform_status(spec: &ControllerConfigSpec) -> Option<&PlatformStatus> {
    status(spec)?.platform_status.as_ref()
}

/// Returns the type of the platform: `None` on a cluster without an Infrastructure object.
fn platform_type(spec: &ControllerConfigSpec) -> Result<PlatformType, TemplateError> {
    if spec.infra.is_none() {
        return Ok(PlatformType::None);
    }
    match platform_status(spec).map(|platform| &platform.kind) {
        None | Some(PlatformType::Unset) => Err(TemplateError::NoPlatform),
        Some(PlatformType::Other(word)) if [BASE, ON_PREM, OWN_DNS].contains(&word.as_str()) => {
            Err(TemplateError::ReservedPlatform(word.clone()))
        }
        Some(kind) => Ok(kind.clone()),
    }
}

/// Platforms that may have templates of their own.
const KNOWN: [PlatformType; 13] = [
    PlatformType::Aws,
    PlatformType::Azure,
    PlatformType::BareMetal,
    PlatformType::Gcp,
    PlatformType::OpenStack,
    PlatformType::Libvirt,
    PlatformType::OVirt,
    PlatformType::VSphere,
    PlatformType::KubeVirt,
    PlatformType::PowerVs,
    PlatformType::None,
    PlatformType::External,
    PlatformType::Nutanix,
];

/// On-prem platforms, and their names in paths and units.
const ON_PREM_NAMES: [(PlatformType, &str); 5] = [
    (PlatformType::BareMetal, "kni"),
    (PlatformType::OVirt, "ovirt"),
    (PlatformType::OpenStack, "openstack"),
    (PlatformType::VSphere, "vsphere"),
    (PlatformType::Nutanix, "nutanix"),
];

/// Platforms whose cloud controller manager always runs.
const CLOUDS: [PlatformType; 10] = [
    PlatformType::Aws,
    PlatformType::Azure,
    PlatformType::Gcp,
    PlatformType::OpenStack,
    PlatformType::VSphere,
    PlatformType::KubeVirt,
    PlatformType::IbmCloud,
    PlatformType::PowerVs,
    PlatformType::AlibabaCloud,
    PlatformType::Nutanix,
];

/// Clouds whose registries have a credential provider for the kubelet, and its name.
const CREDENTIAL_PROVIDERS: [(PlatformType, &str); 3] =
    [(PlatformType::Aws, "ecr"), (PlatformType::Gcp, "gcr"), (PlatformType::Azure, "acr")];

/// Returns the name of a platform in a table; empty if it has none.
fn name_in(table: &[(PlatformType, &'static str)], kind: &PlatformType) -> &'static str {
    table.iter().find(|(known, _)| known == kind).map_or("", |(_, name)| *name)
}

/// Returns the platform if it is treated as `None` because it is not known.
#[must_use]
pub fn unknown_platform(spec: &ControllerConfigSpec) -> Option<String> {
    let kind = platform_type(spec).ok()?;
    (!KNOWN.contains(&kind)).then(|| kind.as_str().to_owned())
}

/// Returns the name of an on-prem platform in paths and units; empty for other platforms.
fn short_name(kind: &PlatformType) -> &'static str {
    name_in(&ON_PREM_NAMES, kind)
}

/// Returns the folders of templates that apply, later ones over earlier ones.
pub fn layers(spec: &ControllerConfigSpec) -> Result<Vec<Cow<'static, str>>, TemplateError> {
    let kind = platform_type(spec)?;
    let mut layers = vec![Cow::Borrowed(BASE)];
    if !short_name(&kind).is_empty() {
        layers.push(ON_PREM.into());
    }
    if has_own_dns(spec) {
        layers.push(OWN_DNS.into());
    }
    let own = if KNOWN.contains(&kind) { kind.as_str().to_lowercase() } else { "none".to_owned() };
    layers.push(own.into());
    match topology(spec) {
        Some(Topology::SingleReplica) => layers.push(SINGLE_NODE.into()),
        Some(Topology::DualReplica) => layers.push(TWO_NODES.into()),
        Some(
            Topology::HighlyAvailable
            | Topology::HighlyAvailableArbiter
            | Topology::External
            | Topology::Other(_),
        )
        | None => {}
    }
    Ok(layers)
}

fn cloud_balancer(spec: &ControllerConfigSpec) -> Option<&CloudLoadBalancerConfig> {
    let platform = platform_status(spec)?;
    let aws = platform.aws.as_ref().and_then(|aws| aws.cloud_load_balancer_config.as_ref());
    let gcp = platform.gcp.as_ref().and_then(|gcp| gcp.cloud_load_balancer_config.as_ref());
    let azure = platform.azure.as_ref().and_then(|azure| azure.cloud_load_balancer_config.as_ref());
    aws.or(gcp).or(azure)
}

fn has_own_dns(spec: &ControllerConfigSpec) -> bool {
    cloud_balancer(spec)
        .is_some_and(|it| it.dns_type == "ClusterHosted" && it.cluster_hosted.is_some())
}

/// Values about the platform for templates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Platform {
    #[serde(rename = "type")]
    kind: String,
    /// `external` if a cloud controller manager runs, else empty.
    cloud_provider: &'static str,
    /// Name of the kubelet's credential provider: `ecr`, `gcr`, `acr` or empty.
    credential_provider: &'static str,
    /// Name of an on-prem platform, else empty.
    short_name: &'static str,
    #[serde(rename = "apiServerInternalIPs")]
    api_ips: Vec<String>,
    #[serde(rename = "ingressIPs")]
    ingress_ips: Vec<String>,
    /// Addresses of the cloud's load balancers, if the cluster serves its own DNS names.
    #[serde(rename = "loadBalancerIPs")]
    load_balancer_ips: LoadBalancerIps,
    /// True if the cluster runs the load balancer of its API.
    managed_load_balancer: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LoadBalancerIps {
    api_int: Vec<String>,
    api: Vec<String>,
    ingress: Vec<String>,
}

impl Platform {
    pub(super) fn of(spec: &ControllerConfigSpec) -> Result<Self, TemplateError> {
        let kind = platform_type(spec)?;
        let status = platform_status(spec);
        let (api_ips, ingress_ips, balancer) =
            status.map_or_else(Default::default, |status| on_prem(&kind, status));
        let hosted = cloud_balancer(spec).and_then(|it| it.cluster_hosted.clone());
        let hosted = hosted.unwrap_or_default();
        // Compat: without a word, the cluster runs the load balancer.
        let managed =
            balancer.is_none_or(|it| it.kind.is_empty() || it.kind == "OpenShiftManagedDefault");
        Ok(Self {
            cloud_provider: cloud_provider(&kind, status),
            credential_provider: name_in(&CREDENTIAL_PROVIDERS, &kind),
            short_name: short_name(&kind),
            managed_load_balancer: !short_name(&kind).is_empty() && managed,
            kind: kind.as_str().to_owned(),
            api_ips,
            ingress_ips,
            load_balancer_ips: LoadBalancerIps {
                api_int: hosted.api_int_load_balancer_ips,
                api: hosted.api_load_balancer_ips,
                ingress: hosted.ingress_load_balancer_ips,
            },
        })
    }
}

fn cloud_provider(kind: &PlatformType, status: Option<&PlatformStatus>) -> &'static str {
    let external = status.and_then(|status| status.external.as_ref());
    let manager = external.and_then(|external| external.cloud_controller_manager.as_ref());
    let has_manager = *kind == PlatformType::External
        && manager.is_some_and(|manager| manager.state == "External");
    if CLOUDS.contains(kind) || has_manager { "external" } else { "" }
}

/// Returns the addresses of API server and ingress, and the load balancer, of an on-prem platform.
fn on_prem(
    kind: &PlatformType,
    status: &PlatformStatus,
) -> (Vec<String>, Vec<String>, Option<LoadBalancer>) {
    macro_rules! of {
        ($member:ident) => {
            status.$member.as_ref().map(|it| {
                let api = several(&it.api_server_internal_ips, &it.api_server_internal_ip);
                (api, several(&it.ingress_ips, &it.ingress_ip), it.load_balancer.clone())
            })
        };
    }
    let found = match short_name(kind) {
        "kni" => of!(baremetal),
        "ovirt" => of!(ovirt),
        "openstack" => of!(openstack),
        "vsphere" => of!(vsphere),
        "nutanix" => of!(nutanix),
        _ => None,
    };
    found.unwrap_or_default()
}

/// Returns the addresses, or the single one of older clusters.
fn several(all: &[String], single: &str) -> Vec<String> {
    if all.is_empty() && !single.is_empty() {
        return vec![single.to_owned()];
    }
    all.to_vec()
}
