//! Adopts a machine that was not managed so far.

use std::collections::BTreeMap;

use mco_api::{
    RenderedName,
    annotation::{self, DaemonState},
};
use mco_apply::{ParsedConfig, disk, verify};
use mco_core::{adopt, lifecycle::Outcome};
use mco_host::System;
use tracing::info;

use super::{Agent, SyncError};
use crate::cluster::Cluster;

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Records the parts of its pool's config that the machine already has, and annotates the node.
    ///
    /// Nothing on the machine changes. The rest follows as an ordinary update.
    pub(super) async fn adopt(&mut self) -> Result<Outcome, SyncError> {
        let Some(target) = self.cluster.pool_config().await? else {
            info!("Waiting for a pool that selects this node and has a rendered config");
            return Ok(Outcome::NoPool);
        };
        let machine = ParsedConfig::read(target)?.machine;
        let (config, missing) = self
            .on_host(move |host| -> Result<_, SyncError> {
                let differs = verify::differing(host, &adopt::checks(&machine));
                let facts = host.system.facts()?;
                let (image, arguments) = (facts.booted_image, facts.kernel_arguments);
                let image = image.filter(|image| !image.is_empty());
                let config = adopt::adopted(&machine, &differs, image.as_deref(), &arguments);
                disk::record_config(&host.root, &config)?;
                Ok((config, differs.len()))
            })
            .await??;
        let name = config.metadata.name.unwrap_or_default();
        info!(config = name, missing, "Adopted this machine");
        let name: RenderedName = name.parse()?;
        let mut annotations = BTreeMap::new();
        annotation::CURRENT_CONFIG.set(&mut annotations, &name);
        annotation::DESIRED_CONFIG.set(&mut annotations, &name);
        annotation::STATE.set(&mut annotations, &DaemonState::Done);
        let pairs = annotations.into_iter().map(|(key, value)| (key, Some(value)));
        self.annotate(pairs.collect()).await?;
        Ok(Outcome::Done)
    }
}
