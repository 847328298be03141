//! What development tasks and the lab share: manifests and images. Nothing ships it.

pub mod image;
pub mod layout;
pub mod manifests;
