//! PinnedImageSet: images that nodes keep pulled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::text::DigestedImage;

kind! {
    /// Images that the nodes of a pool keep pulled, so that a restart needs no registry. A pool
    /// lists the PinnedImageSets that apply to its nodes.
    pub struct PinnedImageSet {
        spec: PinnedImageSetSpec,
    }
    Definition { plural: "pinnedimagesets", ..Definition::COMMON }
}

/// Images to pin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PinnedImageSetSpec {
    /// Images that nodes pull and exclude from image garbage collection.
    #[schemars(length(min = 1, max = 500))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub pinned_images: Vec<PinnedImage>,
}

/// A pinned image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct PinnedImage {
    /// Image reference by digest: `host[:port][/namespace]/name@sha256:<digest>`.
    #[schemars(with = "DigestedImage")]
    pub name: String,
}
