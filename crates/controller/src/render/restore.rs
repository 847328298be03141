//! Puts a rendered config back as it was made when somebody has edited it.
//!
//! The cache keeps no contents of rendered configs, which are large. The generation says whether
//! there is anything to look at: it changes with every edit.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use kube::{Api, ResourceExt as _, api::PostParams};
use mco_api::MachineConfig;
use mco_cluster::{CallError, Note, Reporter};

use crate::{Context, error::ActError};

/// Identity and generation of an object.
type Version = (Option<String>, Option<i64>);

/// The rendered configs that are known to be as they were made, by name.
#[derive(Debug, Default)]
pub(crate) struct Sound(Mutex<BTreeMap<String, Version>>);

impl Sound {
    fn is_known(&self, config: &MachineConfig) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&config.name_any()) == Some(&version(config))
    }

    fn note(&self, config: &MachineConfig) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(config.name_any(), version(config));
    }
}

fn version(config: &MachineConfig) -> Version {
    (config.uid(), config.metadata.generation)
}

/// Looks at the config unless it is known to be sound, and makes it what it was made as.
pub(super) async fn restore(
    context: &Context,
    reporter: &Reporter,
    known: &MachineConfig,
    made: &MachineConfig,
) -> Result<(), ActError> {
    if context.sound.is_known(known) {
        return Ok(());
    }
    let name = made.name_any();
    let api = Api::<MachineConfig>::all(context.client.clone());
    let live = api.get(&name).await.map_err(CallError::from);
    let mut live = live.map_err(|source| ActError::ReadConfig { name: name.clone(), source })?;
    if live.spec != made.spec {
        live.spec = made.spec.clone();
        let written = api.replace(&name, &PostParams::default(), &live).await;
        let written = written.map_err(CallError::from);
        live = written.map_err(|source| ActError::RestoreConfig { name: name.clone(), source })?;
        let text = format!("{name} was edited and is as it was made again");
        reporter.publish(&Note::warning(&live, "RenderedConfigRestored", text)).await;
    }
    context.sound.note(&live);
    Ok(())
}
