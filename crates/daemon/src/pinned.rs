//! Keeps the images of the pool's PinnedImageSets on the machine, so that a restart or an update needs
//! no registry.
//!
//! observe (pool and sets by name, what the engine has) -> `plan` (pure) -> pull what is missing, one
//! after the other -> have the engine keep them -> say so in the MachineConfigNode. The pool is the
//! one that the node's MachineConfigNode names. A newer set stops the work on the older.

mod engine;
mod keep;
mod plan;
mod watch;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use mco_api::{
    MachineConfigNode, NodeName, PinnedImageSet, annotation,
    machine_config_node::PinnedImageSetState,
};
use mco_cluster::{CallError, report::chain};
use mco_core::status::machine_config_node::PinEvent;
use mco_host::{RootError, System, SystemError};
use tokio::{sync::watch as latest, task::JoinError, time::sleep};
use tracing::{info, warn};

use self::{engine::Engine, keep::Runtime};
use crate::{
    Clients,
    cluster::NodeState,
    report::{Mouth, Said, What},
    shared::SharedHost,
};

/// Runs a command on the machine and gives what it printed.
pub type RunCommand = Arc<dyn Fn(&[&str]) -> Result<String, SystemError> + Send + Sync>;

/// A failed try is repeated after one second, then two, and so on up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Why images are not on the machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PinError {
    /// The node cannot take images now.
    #[error(transparent)]
    Node(#[from] plan::Unfit),
    /// An image could not be pulled.
    #[error("failed to pull image {image:?}")]
    Pull {
        /// The image.
        image: String,
        /// Why not.
        source: SystemError,
    },
    /// How large an image is cannot be told.
    #[error("failed to execute podman manifest inspect for {image:?}")]
    Inspect {
        /// The image.
        image: String,
        /// Why not.
        source: SystemError,
    },
    /// What the engine has cannot be told.
    #[error("cannot list the images of the machine")]
    List(#[source] SystemError),
    /// An image went away while others were pulled.
    #[error("image removed during sync: {0}")]
    Vanished(String),
    /// The engine did not take the list.
    #[error("cannot tell the container engine which images to keep")]
    Engine(#[source] SystemError),
    /// Nothing on the machine could keep an image.
    #[error(
        "this machine has neither CRI-O nor containerd, so nothing would keep a pinned image; take its \
         pool's pinnedImageSets away"
    )]
    NoEngine,
    /// The list cannot be written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The API does not answer.
    #[error("cannot read the node")]
    Call(#[source] CallError),
    /// The work on the machine broke off, which is a fault of ours.
    #[error("work on the machine broke off")]
    Broken(#[from] JoinError),
    /// Other images are wanted meanwhile.
    #[error("superseded")]
    Superseded,
}

/// What the keeper of images works with.
pub(crate) struct Pinner<S> {
    pub(crate) node: NodeName,
    pub(crate) host: SharedHost<S>,
    pub(crate) clients: Clients,
    pub(crate) run: RunCommand,
    pub(crate) mouth: Mouth,
    /// The node as the watch last saw it.
    pub(crate) seen: latest::Receiver<NodeState>,
    /// The node's MachineConfigNode.
    pub(crate) report: latest::Receiver<Option<MachineConfigNode>>,
}

impl<S: System + 'static> Pinner<S> {
    /// Keeps images on the machine until dropped.
    pub(crate) async fn work(self) {
        let (sender, wanted) = latest::channel(None);
        let following = watch::follow(self.clients.own.clone(), self.report.clone(), sender);
        tokio::join!(following, self.keep(wanted));
    }

    async fn keep(&self, mut wanted: latest::Receiver<Option<Vec<PinnedImageSet>>>) {
        let (mut failures, mut said) = (0_u32, None);
        loop {
            let sets = wanted.borrow_and_update().clone();
            let pause = match sets {
                None => None,
                Some(sets) => match self.sync(&sets, &wanted, &mut said).await {
                    Ok(()) => {
                        failures = 0;
                        None
                    }
                    Err(PinError::Superseded) => continue,
                    Err(error) => {
                        warn!("Pinned images are not complete: {}", chain(&error));
                        let pause = Duration::from_secs(1 << failures.min(6)).min(LONGEST_PAUSE);
                        failures = failures.saturating_add(1);
                        Some(pause)
                    }
                },
            };
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = rest(pause) => {}
            }
        }
    }

    /// One try; `said` is what we said last of the sets, which nobody else does.
    async fn sync(
        &self,
        sets: &[PinnedImageSet],
        wanted: &latest::Receiver<Option<Vec<PinnedImageSet>>>,
        said: &mut Option<Vec<PinnedImageSetState>>,
    ) -> Result<(), PinError> {
        // The watch may be behind our own words.
        let known = said.clone().unwrap_or_else(|| self.reported());
        let mut say = |states: Vec<PinnedImageSetState>, event: PinEvent| {
            self.say(states.clone(), event);
            *said = Some(states);
        };
        if sets.is_empty() && known.is_empty() && !self.is_pinning().await? {
            return Ok(());
        }
        if plan::states(sets, &known, None) != known {
            say(plan::states(sets, &known, None), PinEvent::Pulling);
        }
        match self.pull_and_pin(sets, wanted).await {
            Ok(()) => {
                say(plan::complete(sets), PinEvent::Complete);
                Ok(())
            }
            Err(PinError::Superseded) => Err(PinError::Superseded),
            Err(error) => {
                let text = chain(&error);
                say(plan::states(sets, &known, Some(&text)), PinEvent::Failed);
                Err(error)
            }
        }
    }

    /// What a daemon before this one said of the sets.
    fn reported(&self) -> Vec<PinnedImageSetState> {
        let report = self.report.borrow();
        let status = report.as_ref().and_then(|report| report.status.as_ref());
        status.map(|status| status.pinned_image_sets.clone()).unwrap_or_default()
    }

    async fn is_pinning(&self) -> Result<bool, PinError> {
        let look = self.host.work(|host| -> Result<bool, RootError> {
            Ok(host.root.exists(keep::PIN_FILE)? || host.root.exists(keep::LABELLED)?)
        });
        Ok(look.await??)
    }

    async fn pull_and_pin(
        &self,
        sets: &[PinnedImageSet],
        wanted: &latest::Receiver<Option<Vec<PinnedImageSet>>>,
    ) -> Result<(), PinError> {
        let images = plan::images(sets);
        let runtime = self.host.work(|host| keep::find(host)).await??;
        if !images.is_empty() && runtime.is_none() {
            return Err(PinError::NoEngine);
        }
        if !images.is_empty() {
            let engine = self.host.work(|host| Engine::find(&host.root)).await??;
            let (run, asked) = (Arc::clone(&self.run), images.clone());
            let missing = blocking(move || engine.missing(&run, &asked)).await??;
            if !missing.is_empty() {
                self.check_node(engine, &missing).await?;
            }
            for image in missing {
                if wanted.has_changed().unwrap_or(true) {
                    return Err(PinError::Superseded);
                }
                info!("Pulling image {image}");
                let run = Arc::clone(&self.run);
                blocking(move || engine.pull(&run, &image)).await??;
            }
            let (run, asked) = (Arc::clone(&self.run), images.clone());
            let gone = blocking(move || engine.missing(&run, &asked)).await??;
            if let Some(image) = gone.into_iter().next() {
                return Err(PinError::Vanished(image));
            }
        }
        match runtime {
            Some(Runtime::Crio) => self.host.work(move |host| keep::by_file(host, &images)).await?,
            Some(Runtime::Containerd(program)) => self.label(program, images).await,
            None => Ok(()),
        }
    }

    async fn check_node(&self, engine: Engine, missing: &[String]) -> Result<(), PinError> {
        let nodes: Api<Node> = Api::all(self.clients.own.clone());
        let node = nodes.get(self.node.as_str()).await;
        let node = node.map_err(|error| PinError::Call(error.into()))?;
        let room = plan::room(&node)?;
        let (run, missing) = (Arc::clone(&self.run), missing.to_vec());
        let needed = blocking(move || engine.size(&run, &missing)).await??;
        Ok(plan::fits(room, needed)?)
    }

    /// Has containerd keep these images and no others of ours.
    async fn label(&self, program: &'static str, images: Vec<String>) -> Result<(), PinError> {
        let wanted = images.clone();
        let let_go = self
            .host
            .work(move |host| -> Result<_, RootError> {
                let before = keep::labelled(host)?;
                let (all, let_go) = plan::labels(&before, &wanted);
                // On record before they have it, so that a crash leaves none that nobody knows of.
                keep::record(host, &all)?;
                Ok(let_go)
            })
            .await??;
        let (run, wanted) = (Arc::clone(&self.run), images.clone());
        blocking(move || keep::label(&run, program, &wanted, &let_go)).await??;
        Ok(self.host.work(move |host| keep::record(host, &images)).await??)
    }

    fn say(&self, sets: Vec<PinnedImageSetState>, event: PinEvent) {
        let annotations = self.seen.borrow().annotations.clone();
        let value = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        self.mouth.say(Said {
            what: What::Pins(sets, event),
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

async fn rest(pause: Option<Duration>) {
    match pause {
        Some(pause) => sleep(pause).await,
        None => std::future::pending().await,
    }
}
