//! ConfigMaps that facts are read from.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use k8s_openapi::api::core::v1::ConfigMap;
use mco_api::label;

/// Namespace with the settings of an OpenShift cluster that its administrator writes.
pub const CONFIG: &str = "openshift-config";
/// Namespace with the settings of an OpenShift cluster that its operators write.
pub const CONFIG_MANAGED: &str = "openshift-config-managed";
const KUBE_SYSTEM: &str = "kube-system";

/// Namespace and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// Namespace of the object.
    pub namespace: Cow<'static, str>,
    /// Name of the object.
    pub name: Cow<'static, str>,
}

const fn fixed(namespace: &'static str, name: &'static str) -> Source {
    Source { namespace: Cow::Borrowed(namespace), name: Cow::Borrowed(name) }
}

/// Returns the ConfigMap of that name in the namespace of an installation.
#[must_use]
pub fn own(namespace: &str, name: &'static str) -> Source {
    Source { namespace: namespace.to_owned().into(), name: Cow::Borrowed(name) }
}

/// Returns the ConfigMap with the CA certificates of the config server.
#[must_use]
pub fn server_ca(namespace: &str) -> Source {
    own(namespace, label::SERVER_CA)
}

/// Returns the copy of [`API_SERVER_CA`] for daemons and config servers, which the operator writes.
#[must_use]
pub fn kubeconfig_data(namespace: &str) -> Source {
    own(namespace, "kubeconfig-data")
}

/// CA certificates that the config server had when the cluster was installed.
pub const ROOT_CA: Source = fixed(KUBE_SYSTEM, "root-ca");
/// Progress of the installation.
pub const BOOTSTRAP: Source = fixed(KUBE_SYSTEM, "bootstrap");
/// CA certificates that the administrator added for the whole cluster.
pub const USER_CA: Source = fixed(CONFIG, "user-ca-bundle");
/// CA certificates of kubelets' clients from the installer.
pub const INITIAL_CA: Source = fixed(CONFIG, "initial-kube-apiserver-server-ca");
/// CA certificates of registries that the cluster added.
pub const REGISTRY_CA: Source = fixed(CONFIG_MANAGED, "image-registry-ca");
/// CA certificates of all registries, which the operator writes.
pub const MERGED_REGISTRY_CA: Source = fixed(CONFIG_MANAGED, "merged-trusted-image-registry-ca");
/// CA certificates of kubelets' clients.
pub const KUBELET_CLIENT_CA: Source = fixed(CONFIG_MANAGED, "kube-apiserver-client-ca");
/// Configuration of the cloud provider.
pub const CLOUD_CONFIG: Source = fixed(CONFIG_MANAGED, "kube-cloud-config");
/// CA certificates of the API server.
pub const API_SERVER_CA: Source = fixed(CONFIG_MANAGED, "kube-apiserver-server-ca");
/// CA that signs the certificate with which the API server connects to kubelets.
pub const KUBELET_SIGNER_CA: Source =
    fixed("openshift-kube-apiserver-operator", "kube-apiserver-to-kubelet-client-ca");

/// ConfigMaps of OpenShift with fixed names, beside those of the installation.
pub const OPENSHIFT: [Source; 10] = [
    ROOT_CA,
    BOOTSTRAP,
    USER_CA,
    INITIAL_CA,
    REGISTRY_CA,
    MERGED_REGISTRY_CA,
    KUBELET_CLIENT_CA,
    CLOUD_CONFIG,
    API_SERVER_CA,
    KUBELET_SIGNER_CA,
];

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Contents of ConfigMaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMaps(BTreeMap<Source, BTreeMap<String, Vec<u8>>>);

impl ConfigMaps {
    /// Adds a ConfigMap.
    pub fn insert(&mut self, source: Source, map: &ConfigMap) {
        self.0.insert(source, contents(map));
    }

    pub(super) fn get(&self, source: &Source) -> Option<&BTreeMap<String, Vec<u8>>> {
        self.0.get(source)
    }

    pub(super) fn key(&self, source: &Source, key: &str) -> Option<&[u8]> {
        Some(self.get(source)?.get(key)?.as_slice())
    }
}

/// Returns the text and the binary data of a ConfigMap.
#[must_use]
pub fn contents(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten();
    let text = text.map(|(key, text)| (key.clone(), text.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten();
    text.chain(binary.map(|(key, bytes)| (key.clone(), bytes.0.clone()))).collect()
}
