//! How a process finds the API server.

use std::path::{Path, PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
pub use kube::Client;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::CallError;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// There is no service account to use.
    #[error("no kubeconfig was given and this is not a pod of a cluster")]
    InCluster(#[source] Box<kube::config::InClusterError>),
    /// The settings do not make a client.
    #[error("cannot make a client for the API server")]
    Client(#[source] CallError),
}

/// A client for the cluster that `kubeconfig` names, or for the one this process is a pod of.
///
/// The configured namespace is not used: every caller names its own.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    use_ring();
    let config = config(kubeconfig).await?;
    Client::try_from(config).map_err(|source| ConnectError::Client(source.into()))
}

/// The certificates, as PEM, that the API server's own certificate is checked with; empty where the
/// machine's are used.
pub async fn authority(kubeconfig: Option<&Path>) -> Result<String, ConnectError> {
    let certificates = config(kubeconfig).await?.root_cert.unwrap_or_default();
    Ok(certificates.iter().map(|certificate| pem(certificate)).collect())
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from).chain(['\n']));
    }
    pem + "-----END CERTIFICATE-----\n"
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    match kubeconfig {
        Some(path) => {
            let named = |source| ConnectError::Kubeconfig {
                path: path.to_owned(),
                source: Box::new(source),
            };
            let file = Kubeconfig::read_from(path).map_err(named)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(named)
        }
        None => Config::incluster().map_err(|source| ConnectError::InCluster(Box::new(source))),
    }
}

/// Makes `ring` the process's only source of cryptography; later calls change nothing.
pub fn use_ring() {
    // Somebody was first, which is as good: there is only one provider in the tree.
    drop(rustls::crypto::ring::default_provider().install_default());
}
