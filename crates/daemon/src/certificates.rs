//! Certificates and pull secrets that nodes follow without a new config: no drain, no reboot, and
//! also while the pool is paused.
//!
//! observe (the ControllerConfig, by name) -> [`bundle`], [`rotation`] (pure) -> atomic writes of what
//! differs -> an annotation that says up to which ControllerConfig. What is written is never logged.

mod bundle;
mod deferred;
mod rotation;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client, ResourceExt as _, runtime::watcher};
use mco_api::{ControllerConfig, NodeName, annotation, label};
use mco_cluster::{CallError, Shutdown, apply, report::chain};
use mco_host::{Host, RootError, System, SystemError};
use tokio::{sync::watch, task::JoinError, time::sleep};
use tracing::{info, warn};

use self::{
    deferred::MadeUp,
    rotation::{Restart, Rotation},
};
use crate::{
    Clients,
    cluster::{
        self as node, Changes, NodeState,
        follow::{Listening, follow_minding},
    },
    execute::KUBECONFIG,
    shared::SharedHost,
};

/// The kubelet's credentials, which name the CAs that it trusts.
const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const KUBELET: &str = "kubelet.service";

/// Where the CAs of the API server are when they rotate.
const ROTATED: &str = "kubeconfig-data";
const ROTATED_KEY: &str = "ca-bundle.crt";

/// A failed try is repeated after one second, then two, and so on up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Why certificates are not up to date.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// The tree cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The kubelet cannot be restarted.
    #[error("cannot restart the kubelet after its CAs changed")]
    Restart(#[source] SystemError),
    /// The API does not answer.
    #[error("cannot {what}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: CallError,
    },
    /// The work on the machine broke off, which is a fault of ours.
    #[error("work on the machine broke off")]
    Broken(#[from] JoinError),
}

/// What the keeper of certificates works with.
pub(crate) struct Keeper<S> {
    pub(crate) node: NodeName,
    pub(crate) host: SharedHost<S>,
    pub(crate) clients: Clients,
    /// The node as the watch last saw it.
    pub(crate) seen: watch::Receiver<NodeState>,
    /// What is wrong, for the node to say.
    pub(crate) trouble: watch::Sender<Option<String>>,
    /// Ends the daemon, so that it starts anew with what the cluster is trusted by now.
    pub(crate) stop: Shutdown,
}

impl<S: System + 'static> Keeper<S> {
    /// Keeps certificates up to date until dropped.
    pub(crate) async fn run(self) {
        let (sender, latest) = watch::channel(None);
        let (doubt, doubts) = watch::channel(None);
        let following = follow(self.clients.own.clone(), sender, doubt);
        tokio::join!(following, self.keep(latest), self.mind(doubts));
    }

    async fn keep(&self, mut latest: watch::Receiver<Option<ControllerConfig>>) {
        // Nobody can be told anything about a node that is not there.
        if self.seen.clone().wait_for(|node| node.version > 0).await.is_err() {
            return;
        }
        let (mut failures, mut said) = (0_u32, NodeState::default());
        while let Some(pause) = self.look(&mut latest, &mut failures, &mut said).await {
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return },
                () = sleep(pause) => {}
            }
        }
    }

    /// Makes up for a restart of the kubelet once its want is felt.
    async fn mind(&self, mut doubts: watch::Receiver<Option<String>>) {
        while doubts.changed().await.is_ok() {
            let doubt = doubts.borrow_and_update().clone().unwrap_or_default();
            let made_up = self.host.work(move |host| deferred::make_up(host, &doubt)).await;
            match made_up.map_err(CertificateError::from).flatten() {
                Ok(MadeUp::NotDue) => {}
                Ok(MadeUp::Yes) => {
                    deferred::wait_for_kubelet(&self.host).await;
                    info!("Ending, to start again with what the cluster is trusted by now");
                    self.stop.request();
                    return;
                }
                Err(error) => warn!("The kubelet is not set up anew: {}", chain(&error)),
            }
        }
    }

    /// One try; how long to wait for the next unless something happens before.
    async fn look(
        &self,
        latest: &mut watch::Receiver<Option<ControllerConfig>>,
        failures: &mut u32,
        said: &mut NodeState,
    ) -> Option<Duration> {
        const FOR_EVER: Duration = Duration::from_hours(24 * 365);
        let config = latest.borrow_and_update().clone();
        let Some(config) = config else { return Some(FOR_EVER) };
        match self.sync(&config, said).await {
            Ok(()) => {
                *failures = 0;
                self.say(None);
                Some(FOR_EVER)
            }
            Err(error) => {
                let text = chain(&error);
                warn!("Certificates are not up to date: {text}");
                self.say(Some(text));
                let pause = Duration::from_secs(1 << (*failures).min(6)).min(LONGEST_PAUSE);
                *failures = failures.saturating_add(1);
                Some(pause)
            }
        }
    }

    fn say(&self, trouble: Option<String>) {
        self.trouble.send_if_modified(|known| {
            let is_news = *known != trouble;
            *known = trouble;
            is_news
        });
    }

    /// Puts right what differs, and says so; `last` is the node as it was when we last did.
    async fn sync(
        &self,
        config: &ControllerConfig,
        last: &mut NodeState,
    ) -> Result<(), CertificateError> {
        let wanted = bundle::files(&config.spec);
        let registries = bundle::registries(&config.spec);
        let changed = self
            .host
            .work(move |host| -> Result<_, RootError> {
                let mut changed = bundle::write(&host.root, &wanted)?;
                changed.extend(bundle::write_registries(&host.root, &registries)?);
                Ok(changed)
            })
            .await??;
        for path in &changed {
            info!("Writing file {path:?}");
        }
        let annotations = &self.newest(last);
        let version = config.resource_version().unwrap_or_default();
        let rotates = annotation::SERVICE_CA_ROTATE.get(config.annotations()).ok().flatten();
        let observed = annotation::OBSERVED_SERVER_CA.get(annotations).ok().flatten();
        if rotates == Some(true) && observed != Some(true) {
            self.rotate().await?;
        }
        let mut said = Changes::new();
        let mut say = |key: &str, value: String| {
            if annotations.get(key) != Some(&value) {
                said.insert(key.to_owned(), Some(value));
            }
        };
        say(annotation::SYNCED_CONTROLLER_CONFIG.name(), version.clone());
        if let Some(rotates) = rotates {
            say(annotation::OBSERVED_SERVER_CA.name(), rotates.to_string());
        }
        if said.is_empty() {
            return Ok(());
        }
        // Before the node says so: whoever sees it there finds it here.
        info!("Certificate was synced from controllerconfig resourceVersion {version}");
        let nodes: Api<Node> = Api::all(self.clients.node.clone());
        let patched = apply::patch_annotations(&nodes, self.node.as_str(), &said).await;
        let patched =
            patched.map_err(|source| CertificateError::Call { what: "patch the node", source })?;
        *last = node::state(&patched.metadata);
        Ok(())
    }

    /// The node's annotations. The watch may be behind what we said ourselves, and a rotation that is
    /// taken for the last one would never be taken over.
    fn newest(&self, last: &NodeState) -> BTreeMap<String, String> {
        let seen = self.seen.borrow();
        let newest = if seen.version >= last.version { &*seen } else { last };
        newest.annotations.clone()
    }

    /// Takes over new CAs of the API server.
    async fn rotate(&self) -> Result<(), CertificateError> {
        let maps: Api<ConfigMap> = Api::namespaced(self.clients.own.clone(), label::NAMESPACE);
        let found = maps.get_opt(ROTATED).await.map_err(|error| CertificateError::Call {
            what: "read the new CAs of the API server",
            source: error.into(),
        })?;
        let text = |map: &ConfigMap| {
            let text = map.data.as_ref().and_then(|data| data.get(ROTATED_KEY));
            let bytes = map.binary_data.as_ref().and_then(|data| data.get(ROTATED_KEY));
            text.map(|text| text.clone().into_bytes()).or_else(|| bytes.map(|it| it.0.clone()))
        };
        let Some(bundle) = found.as_ref().and_then(text) else {
            info!("No new CAs of the API server to take over");
            return Ok(());
        };
        self.host.work(move |host| take_over(host, &bundle)).await?
    }
}

/// Keeps `seen` at the one ControllerConfig, and `doubt` at why the API server is not trusted.
async fn follow(
    client: Client,
    seen: watch::Sender<Option<ControllerConfig>>,
    doubt: watch::Sender<Option<String>>,
) {
    let tell = |object: Option<ControllerConfig>| {
        if seen.is_closed() {
            return Listening::No;
        }
        seen.send_replace(object);
        Listening::Yes
    };
    let mind = |error: &watcher::Error| {
        let text = chain(error);
        if deferred::is_distrust(&text) {
            doubt.send_replace(Some(text));
        }
    };
    Box::pin(follow_minding(Api::all(client), label::CONTROLLER_CONFIG, tell, mind)).await;
}

/// Makes the kubelet trust these CAs, restarting it where it must know at once.
fn take_over<S: System>(host: &mut Host<S>, bundle: &[u8]) -> Result<(), CertificateError> {
    let mut restart = Restart::No;
    for path in [KUBECONFIG, KUBELET_KUBECONFIG] {
        let Some(bytes) = host.root.read(path)? else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let Some(Rotation { kubeconfig, restart: needed }) = rotation::rotate(&text, bundle) else {
            continue;
        };
        // The kubelet's own is written only together with a restart.
        if path == KUBELET_KUBECONFIG && restart != Restart::Now {
            continue;
        }
        if path == KUBECONFIG {
            restart = needed;
        }
        host.root.write(path, kubeconfig.as_bytes(), 0o600)?;
        info!("Writing file {path:?}");
    }
    match restart {
        Restart::No => {}
        Restart::Later => {
            info!("Skipping kubelet restart");
            deferred::note(&host.root)?;
        }
        Restart::Now => {
            info!("Need to restart kubelet");
            info!("restarting kubelet due to server-ca rotation");
            host.system.reload_systemd().map_err(CertificateError::Restart)?;
            host.system.restart(KUBELET).map_err(CertificateError::Restart)?;
            deferred::forget(&host.root)?;
        }
    }
    Ok(())
}
