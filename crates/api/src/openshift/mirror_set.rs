//! Mirrors of registries.

/// The members of the spec.
pub type ImageContentSourcePolicySpec = serde_json::Value;

/// The members of the spec.
pub type ImageDigestMirrorSetSpec = serde_json::Value;

/// The members of the spec.
pub type ImageTagMirrorSetSpec = serde_json::Value;
