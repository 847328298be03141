//! InternalReleaseImage: releases whose images the cluster holds itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::meta::ConditionSchema;
use crate::schema::Rule;
use crate::text::{DigestedImage, ReleaseBundleName};

kind! {
    /// Releases whose images the cluster keeps in a registry of its own, so that it needs no
    /// network to install or update. There is one object, named `cluster`.
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

/// The releases that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InternalReleaseImageSpec {
    /// The releases.
    #[schemars(length(min = 1, max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub releases: Vec<ReleaseReference>,
}

/// Names a release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ReleaseReference {
    /// Name of the release bundle: `ocp-release-bundle-<version>-<arch>`.
    #[schemars(with = "ReleaseBundleName")]
    pub name: String,
}

/// The releases that are there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct InternalReleaseImageStatus {
    /// Whether anything is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(min = 1, max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The releases.
    #[schemars(length(min = 1, max = 32))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub releases: Vec<StoredRelease>,
}

/// A release that is there, or on its way.
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
    /// How far the release is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>", length(min = 1, max = 5))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
