//! ImageDigestMirrorSet, ImageTagMirrorSet and ImageContentSourcePolicy: mirrors of registries.

use serde::{Deserialize, Serialize};

use crate::{wire::null_as_default, wire_enum::wire_enum};

/// Mirrors for images that are pulled by digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageDigestMirrorSetSpec {
    /// Mirrors of each source.
    #[serde(deserialize_with = "null_as_default")]
    pub image_digest_mirrors: Vec<SourceMirrors>,
}

/// Mirrors for images that are pulled by tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageTagMirrorSetSpec {
    /// Mirrors of each source.
    #[serde(deserialize_with = "null_as_default")]
    pub image_tag_mirrors: Vec<SourceMirrors>,
}

/// Mirrors for images that are pulled by digest, in the older form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ImageContentSourcePolicySpec {
    /// Mirrors of each source; their `mirrorSourcePolicy` has no effect.
    #[serde(deserialize_with = "null_as_default")]
    pub repository_digest_mirrors: Vec<SourceMirrors>,
}

/// Mirrors of one registry or repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceMirrors {
    /// Registry or repository that image names refer to.
    pub source: String,
    /// Mirrors, in the order in which they are tried.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<String>,
    /// Use of the source itself after all mirrors failed.
    #[serde(deserialize_with = "null_as_default")]
    pub mirror_source_policy: MirrorSourcePolicy,
}

wire_enum! {
    /// Use of a source after all its mirrors failed.
    pub enum MirrorSourcePolicy {
        /// The image is pulled from the source.
        AllowContactingSource = "AllowContactingSource",
        /// The pull fails.
        NeverContactSource = "NeverContactSource",
    }
}
