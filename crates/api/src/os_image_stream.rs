//! OSImageStream: the OS image streams that pools can choose from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Definition, kind};
use crate::schema::Rule;
use crate::text::{DigestedImage, StreamName};

kind! {
    /// Streams of OS images that pools can choose from. There is one object, named `cluster`.
    pub struct OSImageStream {
        spec: OSImageStreamSpec,
        status: OSImageStreamStatus,
    }
    Definition {
        plural: "osimagestreams",
        rules: &[
            Rule::new(
                "self.metadata.name == 'cluster'",
                "osimagestream is a singleton, .metadata.name must be 'cluster'",
            ),
            Rule::new(
                "self.spec == oldSelf.spec || !has(self.status) || self.spec.defaultStream in self.status.availableStreams.map(s, s.name)",
                "spec.defaultStream must reference an existing stream name from status.availableStreams",
            ),
        ],
        ..Definition::COMMON
    }
}

/// Settings of the administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OSImageStreamSpec {
    /// Stream of the pools that do not name one.
    #[schemars(with = "StreamName")]
    pub default_stream: String,
}

/// Streams of the release.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = &[DEFAULT_IS_AVAILABLE]))]
pub struct OSImageStreamStatus {
    /// Streams that pools can choose.
    #[schemars(length(min = 1, max = 100))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub available_streams: Vec<OSImageStreamSet>,
    /// Stream of the pools that do not name one.
    #[schemars(with = "StreamName")]
    pub default_stream: String,
}

/// A stream of OS images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct OSImageStreamSet {
    /// Name of the stream.
    #[schemars(with = "StreamName")]
    pub name: String,
    /// OS image, by digest.
    #[schemars(with = "DigestedImage")]
    pub os_image: String,
    /// Image with the extension packages, by digest.
    #[schemars(with = "DigestedImage")]
    pub os_extensions_image: String,
}

const DEFAULT_IS_AVAILABLE: Rule = Rule::new(
    "self.defaultStream in self.availableStreams.map(s, s.name)",
    "defaultStream must reference a stream name from availableStreams",
);
