//! The way back to an earlier rendered config: rendered configs follow from MachineConfigs, so that a
//! MachineConfig has to change.
//!
//! Every proposal is rendered before it is made; it leads to the earlier config by name.

use mco_api::{MachineConfig, MachineConfigPool, MachineConfigSpec, PoolName, annotation, label};

use super::{
    Cause, rendered,
    restore::{RenderedChange, Scope},
    selected, written_after,
};
use crate::render::{self, BaseImages};

/// The way back to an earlier rendered config.
#[derive(Clone, Debug, PartialEq)]
pub enum Undo {
    /// The pool has this config already.
    Nothing,
    /// The pool renders to the config without these MachineConfigs.
    Delete(Vec<String>),
    /// The pool renders to the config with the former contents of this MachineConfig, which was edited.
    Restore(Box<MachineConfig>),
    /// The pool renders to the config with this additional MachineConfig, which pins what was changed.
    Pin(Box<MachineConfig>),
    /// MachineConfigs were edited or deleted, and no single change leads to the config.
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
    let is_wanted = |configs: &[&MachineConfig]| {
        let pool = PoolName::try_from(name.clone()).ok();
        let rendered = pool.and_then(|pool| render::pool(&pool, configs, images).ok());
        rendered.is_some_and(|it| it.name.as_str() == wanted_name)
    };
    let without = |names: &[&MachineConfig]| -> Vec<&MachineConfig> {
        let is_kept = |config: &MachineConfig| {
            !names.iter().any(|it| it.metadata.name == config.metadata.name)
        };
        sources.iter().copied().filter(|config| is_kept(config)).collect()
    };
    let leads_back = |names: &[&MachineConfig]| is_wanted(&without(names));
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
    let edited = written_after(&own, since);
    let present = rendered.iter().find(|it| is_named(it, target));
    let change = present.and_then(|present| RenderedChange::read(present, wanted));
    let Some(change) = change else { return Ok((wanted_name, Undo::Edited(edited))) };
    let is_edited = |config: &MachineConfig| edited.iter().any(|it| is_named(config, &it.config));
    for config in own.iter().copied().filter(|config| is_edited(config)) {
        let Some(former) = change.undone_in(config, Scope::Own) else { continue };
        let mut all = without(&[config]);
        all.push(&former);
        if is_wanted(&all) {
            return Ok((wanted_name, Undo::Restore(Box::new(former))));
        }
    }
    if let Some(pin) = change.undone_in(&pin(&name), Scope::All) {
        // The selector of the pool decides whether the pin is rendered at all.
        let with_pin: Vec<MachineConfig> = configs.iter().chain([&pin]).cloned().collect();
        if is_wanted(&selected(pool, &with_pin)) {
            return Ok((wanted_name, Undo::Pin(Box::new(pin))));
        }
    }
    Ok((wanted_name, Undo::Edited(edited)))
}

/// Returns an empty MachineConfig of a pool whose name sorts after all others.
fn pin(pool: &str) -> MachineConfig {
    let name = format!("99-zz-pin-{pool}");
    let mut pin = MachineConfig::new(&name, MachineConfigSpec::default());
    pin.metadata.labels = Some([(label::ROLE.to_owned(), pool.to_owned())].into());
    pin
}

/// Returns true if a controller made the MachineConfig, so that deleting it has no effect.
fn is_generated(config: &MachineConfig) -> bool {
    let annotations = config.metadata.annotations.as_ref();
    let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    annotations.is_some_and(|annotations| annotations.contains_key(key))
}
