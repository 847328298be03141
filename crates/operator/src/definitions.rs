//! The `CustomResourceDefinitions` while the operator runs: a deleted or edited one is applied again.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, ResourceExt as _, core::PartialObjectMeta};
use mco_cluster::{
    Api, Cache, Queue, Shutdown,
    cache::{Change, trim},
    watch::Config as WatchConfig,
};

use crate::install::{self, Foreign, InstallError};

/// A definition without its schemas.
type Metadata = PartialObjectMeta<CustomResourceDefinition>;

/// The installed definitions.
pub(crate) struct Definitions {
    cache: Cache<Metadata>,
    /// True if a definition was deleted or edited since they were installed.
    changed: Arc<AtomicBool>,
    /// Definitions of other owners.
    foreign: Mutex<Vec<Foreign>>,
}

impl Definitions {
    pub(crate) fn new() -> Self {
        Self {
            cache: Cache::new(trim::metadata),
            changed: Arc::new(AtomicBool::new(false)),
            foreign: Mutex::new(Vec::new()),
        }
    }

    /// Adds to `queue` when a definition is deleted or edited.
    pub(crate) fn subscribe(&self, queue: &Arc<Queue<()>>) {
        let names: BTreeSet<String> =
            mco_api::crds().iter().map(kube::ResourceExt::name_any).collect();
        let (queue, changed) = (queue.clone(), self.changed.clone());
        self.cache.on_change(move |change: Change<'_, Metadata>| {
            let Some(before) = change.before.filter(|it| names.contains(&it.name_any())) else {
                return;
            };
            let version = |it: &Metadata| (it.metadata.uid.clone(), it.metadata.generation);
            if change.after.is_none_or(|after| version(after) != version(before)) {
                changed.store(true, Ordering::Release);
                queue.add(());
            }
        });
    }

    /// Runs the watch until shutdown.
    pub(crate) async fn run(&self, client: &Client, config: WatchConfig, shutdown: &Shutdown) {
        let api = Api::<Metadata>::all(client.clone());
        self.cache.run(api, config.metadata_only(), shutdown).await;
    }

    /// Installs the definitions.
    pub(crate) async fn install(&self, client: &Client) -> Result<(), InstallError> {
        let foreign = install::install_definitions(client).await?;
        *self.foreign.lock().unwrap_or_else(PoisonError::into_inner) = foreign;
        Ok(())
    }

    /// Installs the definitions again if one was deleted or edited.
    pub(crate) async fn repair(&self, client: &Client) -> Result<(), InstallError> {
        if !self.changed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let installed = self.install(client).await;
        if installed.is_err() {
            self.changed.store(true, Ordering::Release);
        }
        installed
    }

    /// Returns the definitions of other owners whose schemas lack members, as text.
    pub(crate) fn incomplete(&self) -> Vec<String> {
        let foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let lacking = foreign.iter().filter(|it| !it.lacks.is_empty());
        lacking
            .map(|it| format!("{} of {} lacks {}", it.name, it.owner, it.lacks.join(", ")))
            .collect()
    }
}
