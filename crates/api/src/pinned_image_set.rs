//! PinnedImageSet: images that nodes keep pulled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::text::DigestedImage;

kind! {
    /// Images that the nodes of a pool keep pulled, so that a restart needs no registry. Pools name
    /// the sets that they want.
    pub struct PinnedImageSet {
        spec: PinnedImageSetSpec,
    }
    Definition { plural: "pinnedimagesets", ..Definition::COMMON }
}

/// The images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PinnedImageSetSpec {
    /// Images to pull and to keep from being cleaned up.
    #[schemars(length(min = 1, max = 500))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pinned_images: Vec<PinnedImage>,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PinnedImage {
    /// The image by digest: `host[:port][/namespace]/name@sha256:<digest>`.
    #[schemars(with = "DigestedImage")]
    pub name: String,
}
