//! Checks of manifests: faults that would degrade a pool or that a daemon would refuse.
//!
//! [`check`] takes parsed manifests and returns faults with their locations. Faults that the
//! reference notices only on the node, such as contents that cannot be decoded, are reported too.
//! Reading files and the syntax of YAML and JSON are left to the caller.

mod config;
mod fault;
mod file;
mod ignition;
mod manifests;
pub mod object;
mod pool;
pub mod secret;
mod settings;
pub mod suggest;
mod systemd;
#[cfg(test)]
mod tests;
mod unit;
mod user;
pub mod value;

use std::error::Error;

pub use mco_ignition::report::{Position, Severity};

pub use self::{
    fault::{Fault, Location},
    manifests::{Manifest, Manifests, Pool, role},
    object::{Object, SourceFile},
    value::{FieldPath, SpannedValue},
};

/// Returns all faults of the manifests, in the order of files and lines.
#[must_use]
pub fn check(manifests: &Manifests) -> Vec<Fault> {
    let mut faults = manifests.faults.clone();
    for manifest in &manifests.configs {
        config::check(manifest, &mut faults);
        ignition::check(&manifest.object, &mut faults);
    }
    pool::check(manifests, &mut faults);
    faults.sort_by_key(|fault| {
        let location = fault.location.as_ref();
        let at =
            location.and_then(|location| location.at).map_or((0, 0), |at| (at.line, at.column));
        // Faults without a location concern the whole input and come last.
        (location.is_none(), location.map(|location| location.file.to_string()), at)
    });
    faults
}

/// Joins an error and its sources with `: `, without a source whose text is already at the end.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let line = error.to_string();
        if !line.is_empty() && !text.ends_with(&line) {
            text.extend([": ", &line]);
        }
        source = error.source();
    }
    text
}
