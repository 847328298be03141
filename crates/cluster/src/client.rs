//! How a process finds the API server.

mod retry;

use std::path::{Path, PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
pub use kube::Client;
use kube::{
    Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{Service, retry::Retry};

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
    client(config(kubeconfig).await?)
}

/// A client that knows when to ask again, and has no limit of its own: the API server's priority and
/// fairness knows better what it can bear.
fn client(mut config: Config) -> Result<Client, ConnectError> {
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|source| ConnectError::Client(source.into()))?;
    Ok(Client::new(Retry::new(retry::Again::default(), service(client)), namespace))
}

/// The client as something that layers can be put around.
#[must_use]
pub fn service(
    client: Client,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = kube::Error, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    tower::service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    })
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
        Some(path) => from_file(path, Path::new("/")).await,
        None => Config::incluster().map_err(|source| ConnectError::InCluster(Box::new(source))),
    }
}

/// A client by a kubeconfig of the machine below `root`, which names its files as that machine does.
pub async fn connect_below(root: &Path, kubeconfig: &str) -> Result<Client, ConnectError> {
    use_ring();
    let path = root.join(kubeconfig.trim_start_matches('/'));
    client(from_file(&path, root).await?)
}

async fn from_file(path: &Path, root: &Path) -> Result<Config, ConnectError> {
    let named =
        |source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let mut file = Kubeconfig::read_from(path).map_err(named)?;
    if root != Path::new("/") {
        reroot(&mut file, root);
    }
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(named)
}

/// Makes every file that a kubeconfig names the one below `root`.
fn reroot(file: &mut Kubeconfig, root: &Path) {
    let clusters = file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut());
    let users = file.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut());
    let files =
        clusters.flat_map(|cluster| [&mut cluster.certificate_authority]).chain(users.flat_map(
            |user| [&mut user.client_certificate, &mut user.client_key, &mut user.token_file],
        ));
    for path in files.flatten() {
        let below = root.join(path.trim_start_matches('/'));
        if path.starts_with('/') && !Path::new(path.as_str()).starts_with(root) {
            *path = below.to_string_lossy().into_owned();
        }
    }
}

/// Makes `ring` the process's only source of cryptography; later calls change nothing.
pub fn use_ring() {
    // Somebody was first, which is as good: there is only one provider in the tree.
    drop(rustls::crypto::ring::default_provider().install_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_kubeconfig_are_those_below_the_root() {
        let text = "\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: https://a, certificate-authority: /etc/ca.crt}}]
users:
- name: u
  user: {client-certificate: /var/lib/kubelet/pki/now.pem, client-key: /m/etc/key}
- name: v
  user: {tokenFile: /run/token}
";
        let mut file = Kubeconfig::from_yaml(text).unwrap();
        reroot(&mut file, Path::new("/m"));
        let cluster = file.clusters[0].cluster.clone().unwrap();
        let users: Vec<_> = file.auth_infos.iter().filter_map(|u| u.auth_info.clone()).collect();
        assert_eq!(cluster.certificate_authority.as_deref(), Some("/m/etc/ca.crt"));
        assert_eq!(users[0].client_certificate.as_deref(), Some("/m/var/lib/kubelet/pki/now.pem"));
        assert_eq!(users[0].client_key.as_deref(), Some("/m/etc/key"), "it is below already");
        assert_eq!(users[1].token_file.as_deref(), Some("/m/run/token"));
    }
}
