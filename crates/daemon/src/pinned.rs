//! Keeps the images of the pool's PinnedImageSets on the machine, so that a restart or an update
//! needs no registry.
//!
//! observe (pool and sets by name, images of the engine) -> `plan` (pure) -> pull missing images
//! one after the other -> pin them in the container engine -> report in the MachineConfigNode. The
//! node's MachineConfigNode names the pool. A changed set cancels the work on the older one.

mod engine;
mod pin;
mod plan;
mod watch;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use mco_api::{
    MachineConfigNode, NodeName, PinnedImageSet, annotation,
    machine_config_node::PinnedImageSetState,
};
use mco_cluster::{Api, CallError, report::chain, watch::Config as WatchConfig};
use mco_core::status::update_conditions::PinnedImagesEvent;
use mco_host::{RootError, System, SystemError};
use tokio::{sync::watch as latest, task::JoinError, time::sleep};
use tracing::{info, warn};

use self::{engine::Engine, pin::Runtime};
use crate::{
    Clients,
    cluster::NodeState,
    machine_config_node::{StatusChange, StatusSender, StatusUpdate},
    shared::SharedHost,
};

/// Runs a command on the machine and returns its output.
pub type RunCommand = Arc<dyn Fn(&[&str]) -> Result<String, SystemError> + Send + Sync>;

/// Longest pause between retries; the first is one second, each further one twice as long.
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// A failed sync of pinned images.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PinError {
    /// The node cannot take images now.
    #[error(transparent)]
    Node(#[from] plan::CannotPull),
    /// An image could not be pulled.
    #[error("failed to pull image {image:?}")]
    Pull {
        /// Name of the image.
        image: String,
        /// The error of the command.
        source: SystemError,
    },
    /// The size of an image cannot be read.
    #[error("failed to execute podman manifest inspect for {image:?}")]
    Inspect {
        /// Name of the image.
        image: String,
        /// The error of the command.
        source: SystemError,
    },
    /// The images of the engine cannot be listed.
    #[error("failed to list the images of the machine")]
    List(#[source] SystemError),
    /// An image was removed while others were pulled.
    #[error("image removed during sync: {0}")]
    ImageRemoved(String),
    /// The engine rejected the list of pinned images.
    #[error("failed to pin images in the container engine")]
    Engine(#[source] SystemError),
    /// The machine has no container engine that can pin images.
    #[error(
        "neither CRI-O nor containerd is installed, so images cannot be pinned; remove \
         pinnedImageSets from the pool"
    )]
    NoEngine,
    /// The list cannot be written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The API server did not respond, or refused.
    #[error("failed to read the node")]
    Call(#[source] CallError),
    /// Work on the machine panicked, which is a bug.
    #[error("work on the machine panicked")]
    Panicked(#[from] JoinError),
    /// Other images are wanted meanwhile.
    #[error("superseded")]
    Superseded,
}

/// The sync of pinned images of one node.
pub(crate) struct PinnedImageSync<S> {
    pub(crate) node: NodeName,
    pub(crate) host: SharedHost<S>,
    pub(crate) clients: Clients,
    pub(crate) run: RunCommand,
    pub(crate) status: StatusSender,
    /// First pause between two attempts to pull an image.
    pub(crate) pull_pause: Duration,
    /// The settings of the watches.
    pub(crate) watched: WatchConfig,
    /// The node as last observed by the watch.
    pub(crate) observed: latest::Receiver<NodeState>,
    /// The node's MachineConfigNode.
    pub(crate) machine_config_node: latest::Receiver<Option<MachineConfigNode>>,
}

impl<S: System + 'static> PinnedImageSync<S> {
    /// Syncs pinned images until dropped.
    pub(crate) async fn run(&self) {
        let (sender, wanted) = latest::channel(None);
        let watching = watch::watch_sets(
            self.clients.own.clone(),
            self.watched.clone(),
            self.machine_config_node.clone(),
            sender,
        );
        tokio::join!(watching, self.sync_all(wanted));
    }

    async fn sync_all(&self, mut wanted: latest::Receiver<Option<Vec<PinnedImageSet>>>) {
        let (mut failures, mut reported_states) = (0_u32, None);
        loop {
            let sets = wanted.borrow_and_update().clone();
            let pause = match sets {
                None => None,
                Some(sets) => match self.sync(&sets, &wanted, &mut reported_states).await {
                    Ok(()) => {
                        failures = 0;
                        None
                    }
                    Err(PinError::Superseded) => continue,
                    Err(error) => {
                        warn!(error = chain(&error), "Failed to sync pinned images");
                        let pause = Duration::from_secs(1 << failures.min(6)).min(MAX_BACKOFF);
                        failures = failures.saturating_add(1);
                        Some(pause)
                    }
                },
            };
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = sleep_some(pause) => {}
            }
        }
    }

    /// Syncs once; `reported_states` are those that this daemon, their only writer, reported last.
    async fn sync(
        &self,
        sets: &[PinnedImageSet],
        wanted: &latest::Receiver<Option<Vec<PinnedImageSet>>>,
        reported_states: &mut Option<Vec<PinnedImageSetState>>,
    ) -> Result<(), PinError> {
        // The watch may be behind the daemon's own writes.
        let known = reported_states.clone().unwrap_or_else(|| self.reported());
        let mut report = |states: Vec<PinnedImageSetState>, event: PinnedImagesEvent| {
            self.report_status(states.clone(), event);
            *reported_states = Some(states);
        };
        if sets.is_empty() && known.is_empty() && !self.is_pinning().await? {
            return Ok(());
        }
        if plan::states(sets, &known, None) != known {
            report(plan::states(sets, &known, None), PinnedImagesEvent::Pulling);
        }
        match self.pull_and_pin(sets, wanted).await {
            Ok(()) => {
                report(plan::complete(sets), PinnedImagesEvent::Complete);
                Ok(())
            }
            Err(PinError::Superseded) => Err(PinError::Superseded),
            Err(error) => {
                let text = chain(&error);
                report(plan::states(sets, &known, Some(&text)), PinnedImagesEvent::Failed);
                Err(error)
            }
        }
    }

    /// Returns the state of the sets that an earlier daemon reported.
    fn reported(&self) -> Vec<PinnedImageSetState> {
        let node = self.machine_config_node.borrow();
        let status = node.as_ref().and_then(|node| node.status.as_ref());
        status.map(|status| status.pinned_image_sets.clone()).unwrap_or_default()
    }

    async fn is_pinning(&self) -> Result<bool, PinError> {
        let is_pinning = self.host.work(|host| -> Result<bool, RootError> {
            Ok(host.root.exists(pin::PIN_FILE)? || host.root.exists(pin::RECORD)?)
        });
        Ok(is_pinning.await??)
    }

    async fn pull_and_pin(
        &self,
        sets: &[PinnedImageSet],
        wanted: &latest::Receiver<Option<Vec<PinnedImageSet>>>,
    ) -> Result<(), PinError> {
        let images = plan::images(sets);
        let runtime = self.host.work(|host| pin::find(host)).await??;
        if !images.is_empty() && runtime.is_none() {
            return Err(PinError::NoEngine);
        }
        if !images.is_empty() {
            let engine = self.host.work(|host| Engine::find(&host.root)).await??;
            let (run, wanted_images) = (Arc::clone(&self.run), images.clone());
            let missing = blocking(move || engine.missing(&run, &wanted_images)).await??;
            if !missing.is_empty() {
                self.check_node(engine, &missing).await?;
            }
            for image in missing {
                if wanted.has_changed().unwrap_or(true) {
                    return Err(PinError::Superseded);
                }
                self.pull(engine, &image, &mut wanted.clone()).await?;
            }
            let (run, wanted_images) = (Arc::clone(&self.run), images.clone());
            let gone = blocking(move || engine.missing(&run, &wanted_images)).await??;
            if let Some(image) = gone.into_iter().next() {
                return Err(PinError::ImageRemoved(image));
            }
        }
        match runtime {
            Some(Runtime::Crio) => {
                self.host.work(move |host| pin::pin_with_crio(host, &images)).await?
            }
            Some(Runtime::Containerd(program)) => self.pin_with_containerd(program, images).await,
            None => Ok(()),
        }
    }

    /// Pulls one image, in several attempts with pauses between them.
    async fn pull(
        &self,
        engine: Engine,
        image: &str,
        wanted: &mut latest::Receiver<Option<Vec<PinnedImageSet>>>,
    ) -> Result<(), PinError> {
        info!("Pulling image {image}");
        for attempt in 0.. {
            let (run, name) = (Arc::clone(&self.run), image.to_owned());
            let Err(error) = blocking(move || engine.pull(&run, &name)).await? else { break };
            let fault = chain(&error);
            let pause = plan::pull_pause(attempt, self.pull_pause, &fault).ok_or(error)?;
            warn!(image, error = fault, pause = pause.as_secs_f32(), "Failed to pull image");
            tokio::select! {
                _ = wanted.changed() => return Err(PinError::Superseded),
                () = sleep(pause) => {}
            }
        }
        Ok(())
    }

    async fn check_node(&self, engine: Engine, missing: &[String]) -> Result<(), PinError> {
        let nodes: Api<Node> = Api::all(self.clients.own.clone());
        let node = nodes.get(self.node.as_str()).await;
        let node = node.map_err(|error| PinError::Call(error.into()))?;
        let available = plan::available_bytes(&node)?;
        let (run, missing) = (Arc::clone(&self.run), missing.to_vec());
        let needed = blocking(move || engine.size(&run, &missing)).await??;
        Ok(plan::fits(available, needed)?)
    }

    /// Labels these images in containerd, and removes the daemon's label from all others.
    async fn pin_with_containerd(
        &self,
        program: &'static str,
        images: Vec<String>,
    ) -> Result<(), PinError> {
        let wanted = images.clone();
        let unpin = self
            .host
            .work(move |host| -> Result<_, RootError> {
                let before = pin::labelled(host)?;
                let (all, unpin) = plan::labels(&before, &wanted);
                // Recorded before they are labelled, so that a crash leaves no unrecorded label.
                pin::record(host, &all)?;
                Ok(unpin)
            })
            .await??;
        let (run, wanted) = (Arc::clone(&self.run), images.clone());
        blocking(move || pin::pin_with_containerd(&run, program, &wanted, &unpin)).await??;
        Ok(self.host.work(move |host| pin::record(host, &images)).await??)
    }

    fn report_status(&self, sets: Vec<PinnedImageSetState>, event: PinnedImagesEvent) {
        let annotations = self.observed.borrow().annotations.clone();
        let value = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        self.status.send(StatusUpdate {
            change: StatusChange::PinnedImages(sets, event),
            current: value(annotation::CURRENT_CONFIG.name()),
            desired: value(annotation::DESIRED_CONFIG.name()),
        });
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    tokio::task::spawn_blocking(work).await
}

async fn sleep_some(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}
