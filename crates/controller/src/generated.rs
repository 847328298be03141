//! Writes MachineConfigs that the controller generates.

use kube::{ResourceExt as _, api::DeleteParams};
use mco_api::MachineConfig;
use mco_cluster::{
    Api, CallError,
    apply::{self, Created, Precondition},
    error::Rejection,
};
use mco_core::generated::difference;
use tracing::info;

use crate::{Context, error::ActError};

/// The result of applying a MachineConfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// The MachineConfig was created or changed.
    Written,
    /// The MachineConfig was there already.
    Unchanged,
}

/// Creates a generated MachineConfig, or restores its spec, labels, annotations and owner. Labels and
/// annotations of others stay.
pub(crate) async fn apply(context: &Context, wanted: &MachineConfig) -> Result<Applied, ActError> {
    let name = wanted.name_any();
    let api = Api::<MachineConfig>::all(context.client.clone());
    let found = if let Some(found) = context.caches.configs.get(&name) {
        found
    } else {
        let created = apply::create(&api, wanted).await;
        match created.map_err(|source| ActError::CreateConfig { name: name.clone(), source })? {
            Created::Now(made) => {
                context.caches.configs.learn_new(*made);
                info!(config = name, "Created generated MachineConfig");
                return Ok(Applied::Written);
            }
            // The watch has not delivered the existing config yet.
            Created::Before => {
                let known = api.get(&name).await.map_err(CallError::from);
                let source = |source| ActError::ReadConfig { name: name.clone(), source };
                let known = known.map_err(source)?;
                context.caches.configs.learn_new(known.clone());
                known.into()
            }
        }
    };
    let Some(patch) = difference(&found, wanted) else { return Ok(Applied::Unchanged) };
    // The patch removes what was found, and is wrong for any other state of the object.
    let version = found.resource_version().unwrap_or_default();
    let patched = apply::merge(&api, &name, patch, Precondition::Unchanged(&version)).await;
    let patched =
        patched.map_err(|source| ActError::RestoreConfig { name: name.clone(), source })?;
    context.caches.configs.learn(patched);
    info!(config = name, "Updated generated MachineConfig");
    Ok(Applied::Written)
}

/// Deletes a generated MachineConfig, unless it is gone already.
pub(crate) async fn delete(context: &Context, name: &str) -> Result<(), ActError> {
    let api = Api::<MachineConfig>::all(context.client.clone());
    match api.delete(name, &DeleteParams::default()).await.map_err(CallError::from) {
        Ok(()) => {
            info!(config = name, "Deleted generated MachineConfig");
            Ok(())
        }
        Err(error) if error.rejection() == Some(Rejection::NotFound) => Ok(()),
        Err(source) => Err(ActError::DeleteConfig { name: name.to_owned(), source }),
    }
}
