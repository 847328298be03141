//! Settings for registries in an Image.

/// The members of the spec.
pub type ImageSpec = serde_json::Value;
