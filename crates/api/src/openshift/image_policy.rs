//! Signatures that an ImagePolicy or ClusterImagePolicy requires.

/// The members of the spec.
pub type ImagePolicySpec = serde_json::Value;

/// The members of the status.
pub type ImagePolicyStatus = serde_json::Value;
