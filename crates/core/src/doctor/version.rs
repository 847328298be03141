//! Versions of the client, of the processes in the cluster and of Kubernetes, and the skew between
//! them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};
use mco_api::{ClusterOperator, ControllerConfig, annotation, label};
use serde::Serialize;

/// Minor releases by which a kubelet may be older than the API server.
const KUBELET_SKEW: u32 = 3;

/// Versions in a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVersions {
    /// Release that the cluster has reached, from the ClusterOperator.
    pub release: Option<String>,
    /// Build of the operator that wrote the ControllerConfig.
    pub operator: Option<String>,
    /// Number of pods by image, for each process.
    pub images: BTreeMap<String, BTreeMap<String, usize>>,
    /// Version of Kubernetes.
    pub kubernetes: Option<String>,
    /// Number of nodes by version of the kubelet.
    pub kubelets: BTreeMap<String, usize>,
}

impl ClusterVersions {
    /// Reads the versions from objects.
    #[must_use]
    pub fn of(
        kubernetes: Option<&str>,
        operator: Option<&ClusterOperator>,
        config: Option<&ControllerConfig>,
        pods: &[Pod],
        nodes: &[Node],
    ) -> Self {
        let versions = operator.and_then(|operator| operator.status.as_ref());
        let mut versions = versions.into_iter().flat_map(|status| &status.versions);
        let release = versions.find(|version| version.name == "operator");
        let annotations = config.and_then(|config| config.metadata.annotations.as_ref());
        let build =
            annotations.and_then(|found| found.get(annotation::GENERATED_BY_VERSION.name()));
        let mut images: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for (process, image) in pods.iter().filter_map(process_image) {
            *images.entry(process).or_default().entry(image).or_default() += 1;
        }
        let mut kubelets: BTreeMap<String, usize> = BTreeMap::new();
        for version in nodes.iter().filter_map(kubelet) {
            *kubelets.entry(version.to_owned()).or_default() += 1;
        }
        Self {
            release: release.map(|version| version.version.clone()),
            operator: build.cloned(),
            images,
            kubernetes: kubernetes.map(str::to_owned),
            kubelets,
        }
    }

    /// Returns the processes whose pods have different images, as a sentence.
    #[must_use]
    pub fn image_skew(&self) -> Option<String> {
        let mut images: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (process, found) in &self.images {
            for image in found.keys() {
                images.entry(image).or_default().push(process);
            }
        }
        if images.len() < 2 {
            return None;
        }
        let texts: Vec<String> = images
            .iter()
            .map(|(image, processes)| format!("{} of {image}", processes.join(", ")))
            .collect();
        Some(format!("the processes run from different images: {}", texts.join("; ")))
    }

    /// Returns the relation of the client's version to that of the cluster, as one sentence.
    #[must_use]
    pub fn skew(&self, client: &str) -> String {
        if let Some(skew) = self.image_skew() {
            return format!("{skew}; an upgrade is under way, or one of them was changed by hand");
        }
        match &self.operator {
            None => "no operator of mco or of the reference has written a ControllerConfig, so there is \
                     nothing to compare with"
                .to_owned(),
            Some(operator) if operator == client => {
                "the client and the operator have the same version".to_owned()
            }
            Some(operator) => format!(
                "the client has version {client} and the operator {operator}: use the client of the \
                 cluster's version to render names"
            ),
        }
    }
}

fn process_image(pod: &Pod) -> Option<(String, String)> {
    let process = pod.metadata.labels.as_ref()?.get(label::APP)?;
    let containers = &pod.spec.as_ref()?.containers;
    let own = containers.iter().find(|container| container.name == *process);
    let image = own.or(containers.first())?.image.clone()?;
    process.starts_with("machine-config-").then(|| (process.clone(), image))
}

pub(super) fn kubelet(node: &Node) -> Option<&str> {
    Some(node.status.as_ref()?.node_info.as_ref()?.kubelet_version.as_str())
}

/// Returns major and minor of a version such as `v1.36.4+k3s1`.
pub(super) fn minor(version: &str) -> Option<(u32, u32)> {
    let digits = |text: &str| {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        text.get(..end)?.parse::<u32>().ok()
    };
    let (major, rest) = version.trim_start_matches('v').split_once('.')?;
    Some((digits(major)?, digits(rest)?))
}

/// Returns the reason for which Kubernetes does not support a kubelet of that version.
pub(super) fn kubelet_skew(server: &str, kubelet: &str) -> Option<&'static str> {
    let ((major, server), (of_kubelet, kubelet)) = (minor(server)?, minor(kubelet)?);
    if major != of_kubelet {
        return None;
    }
    if kubelet > server {
        return Some("newer than the API server");
    }
    (kubelet + KUBELET_SKEW < server)
        .then_some("more than three releases older than the API server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_may_be_three_releases_older() {
        let rows = [
            ("v1.36.4", "v1.36.4", None),
            ("v1.36.4", "v1.33.0+k3s1", None),
            ("v1.36.4", "v1.32.9", Some("more than three releases older than the API server")),
            ("v1.36.4", "v1.37.0", Some("newer than the API server")),
            ("v1.36.4", "simulated", None),
            ("v1.36.0+mco", "v1.34.1-rke2r1", None),
        ];
        for (server, kubelet, expected) in rows {
            assert_eq!(kubelet_skew(server, kubelet), expected, "{server} {kubelet}");
        }
    }

    #[test]
    fn skew_is_one_sentence() {
        let at = |operator: Option<&str>, images: &[(&str, &str)]| {
            let mut versions = ClusterVersions {
                operator: operator.map(str::to_owned),
                ..ClusterVersions::default()
            };
            for (process, image) in images {
                let found = versions.images.entry((*process).to_owned()).or_default();
                found.insert((*image).to_owned(), 1);
            }
            versions.skew("1.0.0")
        };
        assert!(at(None, &[]).starts_with("no operator"));
        let same = "the client and the operator have the same version";
        let one = [("machine-config-daemon", "mco:1"), ("machine-config-operator", "mco:1")];
        assert_eq!(at(Some("1.0.0"), &one), same);
        assert!(
            at(Some("2.0.0"), &[]).starts_with("the client has version 1.0.0 and the operator")
        );
        let two = [("machine-config-daemon", "mco:1"), ("machine-config-operator", "mco:2")];
        assert_eq!(
            at(Some("1.0.0"), &two),
            "the processes run from different images: machine-config-daemon of mco:1; \
             machine-config-operator of mco:2; an upgrade is under way, or one of them was changed by \
             hand"
        );
    }
}
