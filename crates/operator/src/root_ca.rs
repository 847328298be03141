//! The CA certificates of the API server.

use std::path::PathBuf;

use mco_cluster::{CallError, client};

use crate::Context;

/// ConfigMap with the CA certificates of the API server, which Kubernetes puts into every namespace.
pub(crate) const CONFIG_MAP: &str = "kube-root-ca.crt";

/// A source of the CA certificates of the API server, as PEM.
#[derive(Clone, Debug, Default)]
pub enum RootCa {
    /// The ConfigMap `kube-root-ca.crt`.
    #[default]
    Cluster,
    /// The certificates of the operator's own connection, read again in each reconcile: those of a
    /// kubeconfig, or of the pod. The ConfigMap if the connection relies on the machine's CAs.
    Connection(Option<PathBuf>),
    /// These certificates.
    Fixed(String),
}

/// The CA certificates of the API server are nowhere to be found.
#[derive(Debug, thiserror::Error)]
#[error(
    "no CA certificates of the API server for spec.rootCAData of the ControllerConfig: the kubeconfig \
     has none, and the ConfigMap {}/kube-root-ca.crt has no ca.crt; set certificate-authority-data \
     in the kubeconfig, or create the ConfigMap",
    .0
)]
struct NoRootCa(String);

/// Returns the current CA certificates of the API server.
pub(crate) async fn fetch(context: &Context) -> Result<String, CallError> {
    let own = match &context.config.root_ca {
        RootCa::Fixed(own) => own.clone(),
        RootCa::Connection(kubeconfig) => {
            let read = client::authority(kubeconfig.as_deref()).await;
            read.map_err(CallError::unmade)?
        }
        RootCa::Cluster => String::new(),
    };
    if !own.is_empty() {
        return Ok(own);
    }
    let namespace = client::namespace(&context.client);
    let found = context.bundles.get(&format!("{namespace}/{CONFIG_MAP}"));
    let data = found.as_ref().and_then(|found| found.data.as_ref());
    let ca = data.and_then(|data| data.get("ca.crt")).filter(|ca| !ca.is_empty());
    ca.cloned().ok_or_else(|| CallError::unmade(NoRootCa(namespace.to_owned())))
}
