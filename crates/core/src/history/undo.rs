//! The way back to an earlier rendered config: rendered configs follow from MachineConfigs, so that a
//! MachineConfig has to change.
//!
//! Every proposal is rendered before it is made; it leads to the earlier config by name.

use mco_api::{MachineConfig, MachineConfigPool, PoolName, annotation};

use super::{Cause, rendered, selected, written_after};
use crate::render::{self, BaseImages};

/// The way back to an earlier rendered config.
#[derive(Clone, Debug, PartialEq)]
pub enum Undo {
    /// The pool has this config already.
    Nothing,
    /// The pool renders to the config without these MachineConfigs.
    Delete(Vec<String>),
    /// MachineConfigs were edited or deleted, and the cluster does not have their earlier contents.
    Edited(Vec<Cause>),
}

/// A pool that cannot be returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UndoError {
    /// The pool has only one rendered config.
    #[error("pool {0} has no earlier rendered config")]
    NoEarlier(String),
    /// The pool has no such rendered config.
    #[error("pool {pool} has no rendered config {config}")]
    Unknown {
        /// Name of the pool.
        pool: String,
        /// Name or number that was given.
        config: String,
    },
}

/// Finds the rendered config to return to: that of the given name or number, or the one before the
/// present one. Returns its name with the way back.
pub fn undo(
    pool: &MachineConfigPool,
    configs: &[MachineConfig],
    images: &BaseImages,
    to: Option<&str>,
) -> Result<(String, Undo), UndoError> {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let rendered = rendered(pool, configs);
    let target = pool.spec.configuration.rendered.name.as_str();
    let is_named =
        |config: &MachineConfig, name: &str| config.metadata.name.as_deref() == Some(name);
    let wanted = if let Some(to) = to {
        let number = to.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let by_number = number.and_then(|number| rendered.get(number));
        let found = by_number.or_else(|| rendered.iter().find(|it| is_named(it, to)));
        let config = to.to_owned();
        found.ok_or(UndoError::Unknown { pool: name.clone(), config })?
    } else {
        let place = rendered.iter().position(|it| is_named(it, target));
        let before = place.and_then(|place| rendered.get(place.checked_sub(1)?));
        before.ok_or_else(|| UndoError::NoEarlier(name.clone()))?
    };
    let wanted_name = wanted.metadata.name.clone().unwrap_or_default();
    if wanted_name == target {
        return Ok((wanted_name, Undo::Nothing));
    }
    let sources = selected(pool, configs);
    let leads_back = |without: &[&MachineConfig]| {
        let kept: Vec<&MachineConfig> = sources
            .iter()
            .copied()
            .filter(|config| !without.iter().any(|it| it.metadata.name == config.metadata.name))
            .collect();
        let pool = PoolName::try_from(name.clone()).ok();
        let rendered = pool.and_then(|pool| render::pool(&pool, &kept, images).ok());
        rendered.is_some_and(|it| it.name.as_str() == wanted_name)
    };
    let names = |configs: &[&MachineConfig]| -> Vec<String> {
        configs.iter().filter_map(|config| config.metadata.name.clone()).collect()
    };
    let own: Vec<&MachineConfig> =
        sources.iter().copied().filter(|config| !is_generated(config)).collect();
    let since = wanted.metadata.creation_timestamp.as_ref();
    let newer = own.iter().copied().filter(|it| it.metadata.creation_timestamp.as_ref() > since);
    let newer: Vec<&MachineConfig> = newer.collect();
    if !newer.is_empty() && leads_back(&newer) {
        return Ok((wanted_name, Undo::Delete(names(&newer))));
    }
    for config in &own {
        if leads_back(&[config]) {
            return Ok((wanted_name, Undo::Delete(names(&[config]))));
        }
    }
    Ok((wanted_name, Undo::Edited(written_after(&own, since))))
}

/// Returns true if a controller made the MachineConfig, so that deleting it has no effect.
fn is_generated(config: &MachineConfig) -> bool {
    let annotations = config.metadata.annotations.as_ref();
    let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    annotations.is_some_and(|annotations| annotations.contains_key(key))
}
