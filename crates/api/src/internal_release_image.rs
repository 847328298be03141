//! InternalReleaseImage: releases whose images the cluster's own registry serves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::meta::ConditionSchema;
use crate::schema::Rule;
use crate::text::{DigestedImage, ReleaseBundleName};

kind! {
    /// Releases whose images the cluster keeps in a registry of its own, so that installation and
    /// updates need no external registry. There is one object, named `cluster`.
    pub struct InternalReleaseImage {
        spec: InternalReleaseImageSpec,
        status: InternalReleaseImageStatus,
    }
    Definition {
        plural: "internalreleaseimages",
        required: &["metadata", "spec"],
        rules: &[Rule::new(
            "self.metadata.name == 'cluster'",
            "internalreleaseimage is a singleton, .metadata.name must be 'cluster'",
        )],
        ..Definition::COMMON
    }
}

/// Releases that the cluster is to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InternalReleaseImageSpec {
    /// Releases to keep, by name.
    #[schemars(length(min = 1, max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub releases: Vec<ReleaseReference>,
}

/// A reference to a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ReleaseReference {
    /// Name of the release bundle: `ocp-release-bundle-<version>-<arch>`.
    #[schemars(with = "ReleaseBundleName")]
    pub name: String,
}

/// Releases that the cluster has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InternalReleaseImageStatus {
    /// Conditions of the InternalReleaseImage, such as `Degraded`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(min = 1, max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Releases that are stored or being copied.
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub releases: Vec<StoredRelease>,
}

/// A release that is stored or being copied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct StoredRelease {
    /// Name of the release bundle.
    #[schemars(with = "ReleaseBundleName")]
    pub name: String,
    /// Image of the release, by digest.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "DigestedImage")]
    pub image: String,
    /// Conditions of the release, such as `Available`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(min = 1, max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
