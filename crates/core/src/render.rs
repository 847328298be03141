//! Renders one pool: many MachineConfigs in, one out, under a name that is a hash of its bytes.
//!
//! Order decides who wins. Configs of the role `worker` come first, all others after them, each
//! group by name; later ones win. So everything written for a custom pool outranks everything
//! written for workers, whatever it is called.
//!
//! Every config is checked before any two are merged, and read only once. Rendering is a pure
//! function: the same configs give the same bytes in whatever order they arrive.

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

use mco_api::{MachineConfig, MachineConfigSpec, PoolName, RenderedName, name::BadName};
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
use crate::goyaml::UnreadableText;

/// The images that apply where no config names another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseImages {
    /// The operating system.
    pub os: String,
    /// Its extensions.
    pub extensions: String,
}

/// What rendering a pool gives.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// `rendered-<pool>-<hash>`.
    pub name: RenderedName,
    /// The merged configuration.
    pub spec: MachineConfigSpec,
    /// The names of the inputs, in the order they were merged.
    pub sources: Vec<String>,
    /// Where each part came from. It is no part of the rendered bytes.
    pub provenance: Provenance,
    /// Whether a config replaced the operating system image.
    pub os_image: OsImage,
}

/// Who chose the operating system image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OsImage {
    /// The cluster.
    Base,
    /// A MachineConfig.
    Overridden,
}

/// Why a pool cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// There is nothing to render.
    #[error("no MachineConfigs to render for pool {0}")]
    Nothing(PoolName),
    /// An input is wrong by itself.
    #[error("MachineConfig {config} is not valid")]
    Invalid {
        /// The input.
        config: String,
        /// What is wrong with it.
        source: InvalidConfig,
    },
    /// An input has no labels, so its place in the order is unknown.
    #[error("cannot find label in MachineConfig {0}")]
    NoLabels(String),
    /// An input in an old format cannot be brought to the present one.
    #[error("MachineConfig {config} cannot be converted to spec 3.5")]
    Upgrade {
        /// The input.
        config: String,
        /// What stands in the way.
        source: UpgradeError,
    },
    /// The headers package fits the default kernel only.
    #[error("installing kernel-devel extension is not supported with kernelType: {0}")]
    KernelDevel(String),
    /// The result cannot be named.
    #[error("the rendered config of pool {pool} has text that cannot be hashed")]
    Unhashable {
        /// The pool.
        pool: PoolName,
        /// The text.
        source: UnreadableText,
    },
    /// The pool's name leaves no room for the hash.
    #[error("pool {pool} has too long a name")]
    Name {
        /// The pool.
        pool: PoolName,
        /// Why not.
        source: BadName,
    },
    /// The result does not fit into the cluster's store.
    #[error(
        "size validation failed: rendered MachineConfig {name} is too large ({size} bytes, max {max} bytes)",
        max = MAX_SIZE
    )]
    TooLarge {
        /// The rendered config.
        name: RenderedName,
        /// How large it is.
        size: usize,
    },
    /// Both a config and the pool choose the operating system.
    #[error(
        "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously"
    )]
    StreamAndOverride,
}

/// What can be wrong with a MachineConfig by itself.
#[derive(Debug, thiserror::Error)]
pub enum InvalidConfig {
    /// There is no such kernel.
    #[error("kernelType={0} is invalid")]
    KernelType(String),
    /// The Ignition config cannot be read.
    #[error(transparent)]
    Ignition(#[from] ReadError),
    /// The Ignition config can be read, but must not be used.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// There are no such extensions.
    #[error("invalid extensions found: [{}]", .0.join(" "))]
    Extensions(Vec<String>),
}

/// At which step rendering failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// An input is wrong by itself.
    Validate,
    /// The inputs do not go together.
    Merge,
}

impl RenderError {
    /// At which step it failed.
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
            | Self::StreamAndOverride => Stage::Merge,
        }
    }
}

/// Renders `configs`, all of them selected for `pool`. Contents that are somewhere else stay there.
pub fn pool(
    pool: &PoolName,
    configs: &[&MachineConfig],
    images: &BaseImages,
) -> Result<Rendered, RenderError> {
    draft(pool, configs, images)?.finish()
}

/// A MachineConfig and what its Ignition config says.
struct Input<'a> {
    config: &'a MachineConfig,
    document: Option<Document>,
}

/// The name of an object, which the API server makes sure of.
fn name_of(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
