//! Deletes generated MachineConfigs that are not needed: their KubeletConfig or pool is gone, or they
//! have the name of an older release.

use mco_api::MachineConfigPool;
use mco_core::kubelet::{self, Origin};

use super::{Controller, Pass};
use crate::{error::ActError, generated as write};

impl Controller {
    /// Deletes the MachineConfigs whose KubeletConfig or pool is gone.
    pub(super) async fn clean_up(&self, pass: &Pass) -> Result<(), ActError> {
        let caches = &self.context.caches;
        // An object that cannot be decoded is not gone.
        if !caches.kubelet_configs.unreadable().is_empty() || !caches.pools.unreadable().is_empty()
        {
            return Ok(());
        }
        let configs = caches.configs.list();
        let configs = configs.iter().map(|config| &**config);
        let orphans = kubelet::orphans(configs, &caches.kubelet_configs.list(), &pass.pools);
        for name in orphans {
            write::delete(&self.context, &name).await?;
        }
        Ok(())
    }

    /// Deletes the MachineConfig of a pool that has the name of an older release; the one with the
    /// new name has just been applied.
    pub(super) async fn delete_legacy_of(
        &self,
        origin: Origin,
        pool: &MachineConfigPool,
    ) -> Result<(), ActError> {
        let Some(name) = origin.legacy_name(pool) else { return Ok(()) };
        match self.context.caches.configs.get(&name) {
            Some(_) => write::delete(&self.context, &name).await,
            None => Ok(()),
        }
    }
}
