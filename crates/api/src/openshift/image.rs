//! Image: the registries that the container engines of the cluster may use.

use serde::{Deserialize, Serialize};

use super::cluster::ConfigMapName;
use crate::wire::null_as_default;

/// Settings of the cluster for images. Settings that concern no node are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageSpec {
    /// ConfigMap with the CA certificates of registries, in the namespace `openshift-config`.
    #[serde(rename = "additionalTrustedCA", deserialize_with = "null_as_default")]
    pub additional_trusted_ca: ConfigMapName,
    /// Rules for the registries that images are pulled from.
    #[serde(deserialize_with = "null_as_default")]
    pub registry_sources: RegistrySources,
}

/// Rules for the registries that images are pulled from.
///
/// A list that is empty differs from one that is left out: an empty one has the file written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RegistrySources {
    /// Registries that are reached without a verified certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_registries: Option<Vec<String>>,
    /// Registries that no image is pulled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_registries: Option<Vec<String>>,
    /// The only registries that images are pulled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_registries: Option<Vec<String>>,
    /// Registries that are searched for image names without a registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_runtime_search_registries: Option<Vec<String>>,
}
