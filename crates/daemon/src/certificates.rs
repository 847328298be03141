//! Syncs certificates and pull secrets of the ControllerConfig to the machine without a new
//! rendered config: no drain, no reboot, and also while the pool is paused.
//!
//! observe (the ControllerConfig, by name) -> [`bundle`], [`rotation`] (pure) -> atomic writes of
//! files that differ -> an annotation with the synced resource version. Contents are never logged.

mod bundle;
mod deferred;
mod rotation;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Client, ResourceExt as _};
use mco_api::{ControllerConfig, NodeName, annotation, label};
use mco_apply::execute::KUBECONFIG;
use mco_cluster::{
    Api, CallError, Shutdown, apply,
    report::chain,
    watch::{Config as WatchConfig, WatchError},
};
use mco_host::{Host, RootError, System, SystemError};
use tokio::{sync::watch, task::JoinError, time::sleep};
use tracing::{info, warn};

use self::{
    deferred::DeferredRestart,
    rotation::{Restart, Rotation},
};
use crate::{
    Clients,
    cluster::{
        self as node, Changes, NodeState,
        object_watch::{AfterChange, watch_one_with_errors},
    },
    shared::{SharedHost, while_managed},
};

/// The kubelet's kubeconfig, which has the CAs that the kubelet trusts.
const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const KUBELET: &str = "kubelet.service";

/// ConfigMap with the rotated CAs of the API server.
const ROTATED_CAS: &str = "kubeconfig-data";
const ROTATED_KEY: &str = "ca-bundle.crt";

/// Longest pause between retries; the first is one second, each further one twice as long.
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// A failed certificate sync.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The kubelet cannot be restarted.
    #[error("failed to restart the kubelet after its CAs changed")]
    Restart(#[source] SystemError),
    /// The API server did not respond, or refused.
    #[error("failed to {what}")]
    Call {
        /// The attempted action.
        what: &'static str,
        /// The error of the client.
        source: CallError,
    },
    /// Work on the machine panicked, which is a bug.
    #[error("work on the machine panicked")]
    Panicked(#[from] JoinError),
}

/// The certificate sync of one node.
pub(crate) struct CertificateSync<S> {
    pub(crate) node: NodeName,
    pub(crate) host: SharedHost<S>,
    /// True while the machine is managed.
    pub(crate) managed: watch::Receiver<bool>,
    pub(crate) clients: Clients,
    /// The settings of the watch.
    pub(crate) watched: WatchConfig,
    /// The node as last observed by the watch.
    pub(crate) observed: watch::Receiver<NodeState>,
    /// The current error, which the agent reports on the node.
    pub(crate) error: watch::Sender<Option<String>>,
    /// Stops the daemon, so that it starts again with the new CAs.
    pub(crate) stop: Shutdown,
}

impl<S: System + 'static> CertificateSync<S> {
    /// Syncs certificates until dropped.
    pub(crate) async fn run(&self) {
        let (sender, latest) = watch::channel(None);
        let (tls_error, tls_errors) = watch::channel(None);
        let watching = watch_controller_config(
            self.clients.own.clone(),
            self.watched.clone(),
            sender,
            tls_error,
        );
        tokio::join!(
            watching,
            while_managed(&self.managed, || self.sync_all(latest.clone())),
            // Also before the node is known, which an API server that is not trusted cannot tell. It
            // changes nothing on a forgotten machine, which has no record of a deferred restart.
            self.restart_on_distrust(tls_errors)
        );
    }

    async fn sync_all(&self, mut latest: watch::Receiver<Option<ControllerConfig>>) {
        // A node that does not exist cannot be annotated.
        if self.observed.clone().wait_for(|node| node.version > 0).await.is_err() {
            return;
        }
        let (mut failures, mut patched) = (0_u32, NodeState::default());
        while let Some(pause) = self.sync_once(&mut latest, &mut failures, &mut patched).await {
            tokio::select! {
                changed = latest.changed() => if changed.is_err() { return },
                () = sleep(pause) => {}
            }
        }
    }

    /// Runs a deferred restart of the kubelet once the API server's certificate is not trusted.
    async fn restart_on_distrust(&self, mut tls_errors: watch::Receiver<Option<String>>) {
        while tls_errors.changed().await.is_ok() {
            let tls_error = tls_errors.borrow_and_update().clone().unwrap_or_default();
            let restarted = self.host.work(move |host| deferred::run(host, &tls_error)).await;
            match restarted.map_err(CertificateError::from).flatten() {
                Ok(DeferredRestart::NotDue) => {}
                Ok(DeferredRestart::Done) => {
                    deferred::wait_for_kubelet(&self.host).await;
                    info!("Stopping the daemon to restart with the new CAs");
                    self.stop.request();
                    return;
                }
                Err(error) => {
                    warn!(error = chain(&error), "Failed to restart the kubelet with the new CAs");
                }
            }
        }
    }

    /// Syncs once; returns the pause until the next sync unless the ControllerConfig changes.
    async fn sync_once(
        &self,
        latest: &mut watch::Receiver<Option<ControllerConfig>>,
        failures: &mut u32,
        patched: &mut NodeState,
    ) -> Option<Duration> {
        const FOREVER: Duration = Duration::from_hours(24 * 365);
        let config = latest.borrow_and_update().clone();
        let Some(config) = config else { return Some(FOREVER) };
        match self.sync(&config, patched).await {
            Ok(()) => {
                *failures = 0;
                self.set_error(None);
                Some(FOREVER)
            }
            Err(error) => {
                let text = chain(&error);
                warn!(error = text, "Certificates are not up to date");
                self.set_error(Some(text));
                let pause = Duration::from_secs(1 << (*failures).min(6)).min(MAX_BACKOFF);
                *failures = failures.saturating_add(1);
                Some(pause)
            }
        }
    }

    fn set_error(&self, error: Option<String>) {
        self.error.send_if_modified(|known| {
            let is_new = *known != error;
            *known = error;
            is_new
        });
    }

    /// Writes the files that differ and annotates the node; `last` is the node after the last
    /// patch.
    async fn sync(
        &self,
        config: &ControllerConfig,
        last: &mut NodeState,
    ) -> Result<(), CertificateError> {
        let wanted = bundle::files(&config.spec);
        let registries = bundle::registries(&config.spec);
        let changed = self
            .host
            .only_while(&self.managed)
            .work(move |host| -> Result<_, RootError> {
                let mut changed = bundle::write(&host.root, &wanted)?;
                changed.extend(bundle::write_registries(&host.root, &registries)?);
                Ok(changed)
            })
            .await??;
        for path in &changed {
            info!("Writing file {path:?}");
        }
        let annotations = &self.latest_annotations(last);
        let version = config.resource_version().unwrap_or_default();
        let rotates = annotation::SERVICE_CA_ROTATE.get(config.annotations()).ok().flatten();
        let observed = annotation::OBSERVED_SERVER_CA.get(annotations).ok().flatten();
        if rotates == Some(true) && observed != Some(true) {
            self.install_rotated_cas().await?;
        }
        let mut patched = Changes::new();
        let mut set = |key: &str, value: String| {
            if annotations.get(key) != Some(&value) {
                patched.insert(key.to_owned(), Some(value));
            }
        };
        set(annotation::SYNCED_CONTROLLER_CONFIG.name(), version.clone());
        if let Some(rotates) = rotates {
            set(annotation::OBSERVED_SERVER_CA.name(), rotates.to_string());
        }
        if patched.is_empty() {
            return Ok(());
        }
        // Logged before the node is patched: an observer of the annotation finds the line in the
        // log.
        info!("Certificate was synced from controllerconfig resourceVersion {version}");
        let nodes: Api<Node> = Api::all(self.clients.node.clone());
        let patched = apply::patch_annotations(&nodes, self.node.as_str(), &patched).await;
        let patched =
            patched.map_err(|source| CertificateError::Call { what: "patch the node", source })?;
        *last = node::answered_state(&patched.metadata);
        Ok(())
    }

    /// Returns the node's annotations. The watch may be behind the daemon's own patch; with stale
    /// annotations a rotation would be mistaken for the last one and never installed.
    fn latest_annotations(&self, last: &NodeState) -> BTreeMap<String, String> {
        let observed = self.observed.borrow();
        let latest = if observed.is_at_least(last) { &*observed } else { last };
        latest.annotations.clone()
    }

    /// Installs rotated CAs of the API server.
    async fn install_rotated_cas(&self) -> Result<(), CertificateError> {
        let maps: Api<ConfigMap> = Api::own(self.clients.own.clone());
        let found = maps.get_opt(ROTATED_CAS).await.map_err(|error| CertificateError::Call {
            what: "read the new CAs of the API server",
            source: error.into(),
        })?;
        let text = |map: &ConfigMap| {
            let text = map.data.as_ref().and_then(|data| data.get(ROTATED_KEY));
            let bytes = map.binary_data.as_ref().and_then(|data| data.get(ROTATED_KEY));
            text.map(|text| text.clone().into_bytes()).or_else(|| bytes.map(|it| it.0.clone()))
        };
        let Some(bundle) = found.as_ref().and_then(text) else {
            info!("No rotated CAs to install");
            return Ok(());
        };
        let host = self.host.only_while(&self.managed);
        host.work(move |host| install_cas(host, &bundle)).await?
    }
}

/// Keeps `observed` at the ControllerConfig, and `tls_error` at the TLS error if the API server's
/// certificate is not trusted.
async fn watch_controller_config(
    client: Client,
    config: WatchConfig,
    observed: watch::Sender<Option<ControllerConfig>>,
    tls_error: watch::Sender<Option<String>>,
) {
    let on_change = |object: Option<ControllerConfig>| {
        if observed.is_closed() {
            return AfterChange::Stop;
        }
        observed.send_replace(object);
        AfterChange::Continue
    };
    let on_error = |error: &WatchError| {
        let text = chain(error);
        if deferred::is_untrusted_certificate(&text) {
            tls_error.send_replace(Some(text));
        }
    };
    Box::pin(watch_one_with_errors(
        Api::all(client),
        label::CONTROLLER_CONFIG,
        config,
        on_change,
        on_error,
    ))
    .await;
}

/// Writes the CAs into the kubeconfigs, and restarts the kubelet if it must trust them at once.
fn install_cas<S: System>(host: &mut Host<S>, bundle: &[u8]) -> Result<(), CertificateError> {
    let mut restart =
        if deferred::is_interrupted(&host.root)? { Restart::Now } else { Restart::No };
    for path in [KUBECONFIG, KUBELET_KUBECONFIG] {
        let Some(bytes) = host.root.read(path)? else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let Some(Rotation { kubeconfig, restart: needed }) = rotation::rotate(&text, bundle) else {
            continue;
        };
        // The kubelet's own kubeconfig is written only together with a restart.
        if path == KUBELET_KUBECONFIG && restart != Restart::Now {
            continue;
        }
        if path == KUBECONFIG && restart != Restart::Now {
            restart = needed;
            // Before the file: after a crash, nothing else tells that the kubelet has to restart.
            deferred::record(&host.root, restart)?;
        }
        host.root.write(path, kubeconfig.as_bytes(), 0o600)?;
        info!("Writing file {path:?}");
    }
    match restart {
        Restart::No => {}
        Restart::Later => info!("Skipping kubelet restart"),
        Restart::Now => {
            info!("Need to restart kubelet");
            info!("restarting kubelet due to server-ca rotation");
            host.system.reload_systemd().map_err(CertificateError::Restart)?;
            host.system.restart(KUBELET).map_err(CertificateError::Restart)?;
            deferred::clear(&host.root)?;
        }
    }
    Ok(())
}
