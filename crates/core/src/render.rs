//! Rendering of a pool: merges many MachineConfigs into one, named by a hash of its bytes.
//!
//! Configs of the role `worker` come first, all others after them, each group by name; later ones
//! win. So every config of a custom pool outranks every config of the workers, regardless of its
//! name.
//!
//! Every config is validated before any two are merged, and parsed only once. Rendering is a pure
//! function: the same configs give the same bytes in any order of arrival.

mod draft;
mod merge;
mod name;
mod object;
mod provenance;
mod reconcile;
pub mod remote;
mod runtime;
mod select;
mod skew;
mod stream;
mod validate;

use mco_api::{MachineConfig, MachineConfigSpec, PoolName, RenderedName, name::NameError};
use mco_ignition::{CheckError, Document, ReadError, UpgradeError};

pub use self::{
    draft::{Draft, draft},
    merge::merge_order,
    object::{MAX_SIZE, Origin, SizeWarning},
    provenance::{Contribution, Item, Kind, Provenance},
    reconcile::{IrreconcilableError, check_reconcilable},
    runtime::{RuntimeError, check_runtime},
    select::{SelectError, Selection, select},
    skew::{Build, Skew, check_skew},
    stream::{StreamError, stream_of},
    validate::{EXTENSIONS, validate},
};
use crate::{goyaml::UnreadableText, machine::paths::PathConflict};

/// The images that apply if no config sets another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseImages {
    /// OS image.
    pub os: String,
    /// Image of the OS extensions.
    pub extensions: String,
}

/// The result of rendering a pool.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// `rendered-<pool>-<hash>`.
    pub name: RenderedName,
    /// The merged spec.
    pub spec: MachineConfigSpec,
    /// Names of the inputs, in merge order.
    pub sources: Vec<String>,
    /// Origin of each part. It is not part of the rendered bytes.
    pub provenance: Provenance,
    /// Origin of the OS image.
    pub os_image: OsImage,
}

/// The origin of the OS image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsImage {
    /// The cluster's base image.
    Base,
    /// A MachineConfig.
    Overridden,
}

/// The reason why a pool cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The pool has no configs.
    #[error("no MachineConfigs to render for pool {0}")]
    Nothing(PoolName),
    /// A config is invalid by itself.
    #[error("MachineConfig {config} is not valid")]
    Invalid {
        /// Name of the config.
        config: String,
        /// Validation error.
        source: InvalidConfig,
    },
    /// A config has no labels, so its position in the order is unknown.
    #[error("cannot find label in MachineConfig {0}")]
    NoLabels(String),
    /// A config with an old Ignition version cannot be upgraded.
    #[error("MachineConfig {config} cannot be converted to spec 3.5")]
    Upgrade {
        /// Name of the config.
        config: String,
        /// Upgrade error.
        source: UpgradeError,
    },
    /// The extension `kernel-devel` supports the default kernel only.
    #[error("installing kernel-devel extension is not supported with kernelType: {0}")]
    KernelDevel(String),
    /// The rendered config cannot be hashed.
    #[error("the rendered config of pool {pool} has text that cannot be hashed")]
    Unhashable {
        /// Name of the pool.
        pool: PoolName,
        /// The text that cannot be hashed.
        source: UnreadableText,
    },
    /// The pool's name leaves no room for the hash.
    #[error("the name of pool {pool} is too long")]
    Name {
        /// Name of the pool.
        pool: PoolName,
        /// Error of the name.
        source: NameError,
    },
    /// The rendered config exceeds the size limit of etcd.
    #[error(
        "size validation failed: rendered MachineConfig {name} is too large ({size} bytes, max {max} bytes)",
        max = MAX_SIZE
    )]
    TooLarge {
        /// Name of the rendered config.
        name: RenderedName,
        /// Size in bytes.
        size: usize,
    },
    /// The merged config has a path that no machine can have.
    #[error("no node of pool {pool} can apply its MachineConfigs ({})", .configs.join(", "))]
    Path {
        /// Name of the pool.
        pool: PoolName,
        /// The MachineConfigs that set the paths involved.
        configs: Vec<String>,
        /// The first such path.
        source: PathConflict,
    },
    /// Both a config and the pool set the operating system.
    #[error(
        "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously"
    )]
    StreamAndOverride,
}

/// An error in a single MachineConfig.
#[derive(Debug, thiserror::Error)]
pub enum InvalidConfig {
    /// Unknown kernel type.
    #[error("kernelType={0} is invalid")]
    KernelType(String),
    /// The Ignition config cannot be parsed.
    #[error(transparent)]
    Ignition(#[from] ReadError),
    /// The Ignition config violates a rule.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// Unknown extensions.
    #[error("invalid extensions found: [{}]", .0.join(" "))]
    Extensions(Vec<String>),
}

/// The stage at which rendering failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Validation of a single config.
    Validate,
    /// Merging of all configs.
    Merge,
}

impl RenderError {
    /// Returns the stage at which rendering failed.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self {
            Self::Invalid { .. } => Stage::Validate,
            Self::Nothing(_)
            | Self::NoLabels(_)
            | Self::Upgrade { .. }
            | Self::KernelDevel(_)
            | Self::Unhashable { .. }
            | Self::Name { .. }
            | Self::TooLarge { .. }
            | Self::Path { .. }
            | Self::StreamAndOverride => Stage::Merge,
        }
    }
}

/// Renders `configs`, all of them selected for `pool`. Remote contents are not fetched.
pub fn pool(
    pool: &PoolName,
    configs: &[&MachineConfig],
    images: &BaseImages,
) -> Result<Rendered, RenderError> {
    draft(pool, configs, images)?.finish()
}

/// A MachineConfig with its parsed Ignition config.
struct Input<'a> {
    config: &'a MachineConfig,
    document: Option<Document>,
}

/// Returns the name of an object, which the API server guarantees.
fn name_of(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
