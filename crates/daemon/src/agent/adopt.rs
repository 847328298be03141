//! Takes over a machine that nobody managed so far.

use std::{collections::BTreeMap, time::Duration};

use mco_api::{
    RenderedName,
    annotation::{self, DaemonState},
};
use mco_core::adopt;
use mco_host::System;
use tokio::time::Instant;
use tracing::info;

use super::{Agent, Next, SyncError, update::read};
use crate::{cluster::Cluster, disk, verify};

/// How often a node that no pool has a config for asks again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Puts on record what the machine has of its pool's config already, and says so.
    ///
    /// Nothing on the machine changes. The rest is an update like any other, in its turn.
    pub(super) async fn adopt(&mut self) -> Result<Next, SyncError> {
        let Some(target) = self.cluster.pool_config().await? else {
            info!("Waiting for a pool that has this node and a config for it");
            return Ok(Next::Wait(Some(Instant::now() + ASK_AGAIN)));
        };
        let machine = read(&target)?;
        let (config, missing) = self
            .on_host(move |host| -> Result<_, SyncError> {
                let differs = verify::differing(host, &adopt::questions(&machine));
                let facts = host.system.facts()?;
                let (image, arguments) = (facts.booted_image, facts.kernel_arguments);
                let image = image.filter(|image| !image.is_empty());
                let config = adopt::adopted(&machine, &differs, image.as_deref(), &arguments);
                disk::record_config(&host.root, &config)?;
                Ok((config, differs.len()))
            })
            .await??;
        let name = config.metadata.name.unwrap_or_default();
        info!("Adopted this machine as {name}: {missing} parts of the pool's config are missing");
        let name: RenderedName = name.parse()?;
        let mut annotations = BTreeMap::new();
        annotation::CURRENT_CONFIG.set(&mut annotations, &name);
        annotation::DESIRED_CONFIG.set(&mut annotations, &name);
        annotation::STATE.set(&mut annotations, &DaemonState::Done);
        let pairs = annotations.into_iter().map(|(key, value)| (key, Some(value)));
        self.annotate(pairs.collect()).await?;
        Ok(Next::Again)
    }
}
