//! The API of the operator: its kinds, labels, annotations and object names.
//!
//! One kind per file. The Rust types are the only source: the CRDs are generated from them, and a
//! test compares the CRDs with the reference's. This crate does not read files, clocks or the
//! network.

pub mod annotation;
mod bytes;
pub mod cluster_operator;
pub mod condition;
pub mod container_runtime_config;
pub mod controller_config;
pub mod duration;
pub mod internal_release_image;
pub mod join_token;
mod kind;
pub mod kubelet_config;
pub mod label;
pub mod machine_config;
pub mod machine_config_node;
pub mod machine_config_pool;
pub mod machine_configuration;
pub mod machine_os_build;
pub mod machine_os_config;
pub mod meta;
pub mod name;
pub mod openshift;
pub mod os_image_stream;
pub mod pinned_image_set;
pub mod quantity;
mod raw_config;
mod schema;
pub mod selector;
mod text;
mod wire;
mod wire_enum;
mod yaml;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use bytes::Bytes;
pub use cluster_operator::ClusterOperator;
pub use container_runtime_config::ContainerRuntimeConfig;
pub use controller_config::ControllerConfig;
pub use internal_release_image::InternalReleaseImage;
pub use kind::{GROUP, VERSION};
pub use kubelet_config::KubeletConfig;
pub use machine_config::{MachineConfig, MachineConfigSpec};
pub use machine_config_node::MachineConfigNode;
pub use machine_config_pool::{MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus};
pub use machine_configuration::MachineConfiguration;
pub use machine_os_build::MachineOSBuild;
pub use machine_os_config::MachineOSConfig;
pub use name::{NodeName, PoolName, RenderedName};
pub use os_image_stream::OSImageStream;
pub use pinned_image_set::PinnedImageSet;
pub use raw_config::RawConfig;
pub use yaml::{crd_yaml, object_yaml};

/// Returns the CRDs of all kinds, sorted by name.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    use kind::definition;
    let mut crds = vec![
        definition::<ClusterOperator>(),
        definition::<ContainerRuntimeConfig>(),
        definition::<ControllerConfig>(),
        definition::<InternalReleaseImage>(),
        definition::<KubeletConfig>(),
        definition::<MachineConfig>(),
        definition::<MachineConfigNode>(),
        definition::<MachineConfigPool>(),
        definition::<MachineConfiguration>(),
        definition::<MachineOSBuild>(),
        definition::<MachineOSConfig>(),
        definition::<OSImageStream>(),
        definition::<PinnedImageSet>(),
    ];
    crds.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    crds
}
