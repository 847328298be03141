//! Images of the release: flags, or an `ImageStream` with the references of a release.

use std::collections::BTreeMap;

use mco_core::controller_config::ReleaseImages;
use serde_json::Value;
use tracing::warn;

use super::{parse, required};
use crate::error::error_with_hint;

/// Images of the release.
#[derive(Debug, clap::Args)]
pub(super) struct ImageArgs {
    /// Image of mco
    #[arg(long, default_value = "", value_name = "IMAGE")]
    machine_config_operator_image: String,
    /// Accepted for compatibility, without effect
    #[arg(long, default_value = "", hide = true)]
    machine_config_oscontent_image: String,
    /// Image of pods' infrastructure containers
    #[arg(long, default_value = "", value_name = "IMAGE")]
    infra_image: String,
    /// Image of the release
    #[arg(long, default_value = "", value_name = "IMAGE")]
    pub(super) release_image: String,
    /// `ImageStream` with the images of the release; used instead of the other flags
    #[arg(long, value_name = "FILE")]
    image_references: Option<String>,
    /// Image of keepalived
    #[arg(long, default_value = "", value_name = "IMAGE")]
    keepalived_image: String,
    /// Image of the DNS server
    #[arg(long, default_value = "", value_name = "IMAGE")]
    coredns_image: String,
    /// Image of the load balancer
    #[arg(long, default_value = "", value_name = "IMAGE")]
    haproxy_image: String,
    /// Image of the configuration tool for bare metal
    #[arg(long, default_value = "", value_name = "IMAGE")]
    baremetal_runtimecfg_image: String,
    /// Accepted for compatibility, without effect
    #[arg(long, default_value = "", hide = true)]
    oauth_proxy_image: String,
    /// OS image
    #[arg(long, default_value = "", value_name = "IMAGE")]
    baseos_image: String,
    /// Extensions image that fits the OS image
    #[arg(long, default_value = "", value_name = "IMAGE")]
    baseos_extensions_image: String,
    /// Image of the proxy for metrics
    #[arg(long, default_value = "", value_name = "IMAGE")]
    kube_rbac_proxy_image: String,
    /// Image of a registry
    #[arg(long, default_value = "", value_name = "IMAGE")]
    docker_registry_image: String,
}

/// Tags that a release must have, and the names of the images in a ControllerConfig; some have none.
const TAGS: [(&str, &str); 9] = [
    ("machine-config-operator", "machineConfigOperator"),
    ("keepalived-ipfailover", "keepalivedImage"),
    ("coredns", "corednsImage"),
    ("baremetal-runtimecfg", "baremetalRuntimeCfgImage"),
    ("oauth-proxy", ""),
    ("kube-rbac-proxy", "kubeRbacProxyImage"),
    ("pod", "infraImageKey"),
    ("haproxy-router", "haproxyImage"),
    ("docker-registry", "dockerRegistryImage"),
];

/// Tags of OS images; the first one that a release has counts.
const OS_TAGS: [&str; 3] = ["rhel-coreos", "stream-coreos", "fedora-coreos"];

impl ImageArgs {
    /// Returns the images of the release.
    pub(super) fn read(&self) -> anyhow::Result<ReleaseImages> {
        let mut images = match &self.image_references {
            Some(path) => {
                let stream: Value = parse(path, &required("image-references", path)?)?;
                of_stream(&stream).map_err(|reason| {
                    error_with_hint(format!("{path}: {reason}"), "use the file of a release")
                })?
            }
            None => self.of_flags(),
        };
        if let Some(own) = images.images.get("machineConfigOperator").cloned() {
            images.images.insert("apiServerWatcherKey".to_owned(), own);
        }
        Ok(images)
    }

    fn of_flags(&self) -> ReleaseImages {
        let named = [
            ("machineConfigOperator", &self.machine_config_operator_image),
            ("infraImageKey", &self.infra_image),
            ("keepalivedImage", &self.keepalived_image),
            ("corednsImage", &self.coredns_image),
            ("haproxyImage", &self.haproxy_image),
            ("baremetalRuntimeCfgImage", &self.baremetal_runtimecfg_image),
            ("kubeRbacProxyImage", &self.kube_rbac_proxy_image),
            ("dockerRegistryImage", &self.docker_registry_image),
        ];
        let set = named.into_iter().filter(|(_, image)| !image.is_empty());
        ReleaseImages {
            images: set.map(|(name, image)| (name.to_owned(), image.clone())).collect(),
            os_image: self.baseos_image.clone(),
            os_extensions_image: self.baseos_extensions_image.clone(),
        }
    }
}

/// Reads the images of an `ImageStream`.
fn of_stream(stream: &Value) -> Result<ReleaseImages, String> {
    let tags = stream.pointer("/spec/tags").and_then(Value::as_array).into_iter().flatten();
    let image = |tag: &Value| {
        let text = |pointer: &str| tag.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let is_image = text("/from/kind").is_some_and(|kind| kind == "DockerImage");
        Some((text("/name")?, text("/from/name").filter(|_| is_image)?))
    };
    let found: BTreeMap<String, String> = tags.filter_map(image).collect();
    let mut images = BTreeMap::new();
    for (tag, name) in TAGS {
        let image = found.get(tag).ok_or_else(|| {
            format!("spec.tags has no tag {tag:?} with an image of kind DockerImage")
        })?;
        if !name.is_empty() {
            images.insert(name.to_owned(), image.clone());
        }
    }
    let os = OS_TAGS.iter().find(|tag| found.contains_key(**tag));
    if os.is_none() {
        warn!(?OS_TAGS, "The release has no OS image");
    }
    let of = |suffix: &str| {
        let tag = os.map(|tag| format!("{tag}{suffix}"));
        tag.and_then(|tag| found.get(&tag).cloned()).unwrap_or_default()
    };
    Ok(ReleaseImages { images, os_image: of(""), os_extensions_image: of("-extensions") })
}
