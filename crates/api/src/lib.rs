//! The wire contract: every kind, label, annotation and name that the cluster sees.
//!
//! One kind per file. The Rust types are the only source; the CRDs are generated from them and
//! compared with the reference's in a test. Nothing here reads files, clocks or the network.

pub mod annotation;
pub mod kind;
pub mod label;
pub mod machine_config;
pub mod machine_config_pool;
pub mod meta;
pub mod name;
mod raw_config;
mod schema;
pub mod selector;
mod text;
mod wire;
mod wire_enum;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

pub use machine_config::{MachineConfig, MachineConfigSpec};
pub use machine_config_pool::{MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus};
pub use name::{NodeName, PoolName, RenderedName};
pub use raw_config::RawConfig;

/// The CRDs of all kinds, sorted by name.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![kind::definition::<MachineConfigPool>(), kind::definition::<MachineConfig>()]
}
