//! Everything that would make a pool degrade or a daemon refuse, found before it happens.
//!
//! Pure: looks at manifests, returns faults. What the reference notices only on the node, such as
//! contents that cannot be decoded, is a fault here all the same.

mod config;
mod file;
mod ignition;
mod pool;
pub(crate) mod secret;
mod systemd;
pub(crate) mod unit;
mod user;

use crate::{fault::Fault, load::manifests::Manifests};

/// All faults of the manifests, in the order of files and lines.
pub(crate) fn all(manifests: &Manifests) -> Vec<Fault> {
    let mut faults = manifests.faults.clone();
    for manifest in &manifests.configs {
        config::check(manifest, &mut faults);
        ignition::check(&manifest.object, &mut faults);
    }
    pool::check(manifests, &mut faults);
    faults.sort_by_key(|fault| {
        let place = fault.place.as_ref();
        let at = place.and_then(|place| place.at).map_or((0, 0), |at| (at.line, at.column));
        // What has no place is about the whole and comes last.
        (place.is_none(), place.map(|place| place.file.to_string()), at)
    });
    faults
}
