//! How a process finds the API server.

mod renew;
mod retry;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
pub use kube::Client;
use kube::{Config, client::Body};
use serde_json::Value;
use tower::{Service, retry::Retry};

pub use self::renew::ReadFile;
use self::renew::{Renewing, Source};
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
    /// The address of the API server is none.
    #[error("{server:?} is no address of an API server")]
    Server {
        /// The address.
        server: String,
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// The settings do not make a client.
    #[error("cannot make a client for the API server")]
    Client(#[source] CallError),
}

/// A client for the cluster that `kubeconfig` names, or for the one this process is a pod of.
///
/// The configured namespace is not used: every caller names its own.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    match kubeconfig {
        Some(path) => connect_through(&path.to_string_lossy(), from_disk()).await,
        None => connect_as_pod(None),
    }
}

/// A client by a kubeconfig, which it follows when that changes; files are read by `read`.
pub async fn connect_through(kubeconfig: &str, read: ReadFile) -> Result<Client, ConnectError> {
    use_ring();
    let (renewing, namespace) = Renewing::new(Source::new(kubeconfig, read)).await?;
    let service = tower::service_fn(move |request| renewing.clone().send(request));
    Ok(Client::new(Retry::new(retry::Again::default(), service), namespace))
}

/// A client for the cluster that this process is a pod of, at `server` where one is given: the address
/// that the cluster gives its pods may depend on what runs on this very machine.
pub fn connect_as_pod(server: Option<&str>) -> Result<Client, ConnectError> {
    use_ring();
    let mut config =
        Config::incluster().map_err(|source| ConnectError::InCluster(Box::new(source)))?;
    if let Some(server) = server {
        config.cluster_url = server
            .parse()
            .map_err(|source| ConnectError::Server { server: server.to_owned(), source })?;
    }
    let namespace = config.default_namespace.clone();
    let service = service(plain(config)?);
    Ok(Client::new(Retry::new(retry::Again::default(), service), namespace))
}

/// Where the API server is, by a kubeconfig whose files are read by `read`.
pub fn server(kubeconfig: &str, read: ReadFile) -> Result<Option<String>, ConnectError> {
    let file = Source::new(kubeconfig, read).load()?;
    let named = |list: &str, name: &Value| {
        let mut entries = file.get(list).and_then(Value::as_array).into_iter().flatten();
        entries.find(|entry| entry.get("name") == Some(name)).cloned()
    };
    let context = named("contexts", file.get("current-context").unwrap_or(&Value::Null));
    let cluster = context.and_then(|it| named("clusters", it.pointer("/context/cluster")?));
    let server = cluster.and_then(|it| it.pointer("/cluster/server")?.as_str().map(str::to_owned));
    Ok(server)
}

fn from_disk() -> ReadFile {
    Arc::new(|path: &str| std::fs::read(path))
}

/// A client that has no limit of its own and does not ask again: the API server's priority and fairness
/// knows better what it can bear, and [`retry`] when to ask again.
fn plain(mut config: Config) -> Result<Client, ConnectError> {
    config.default_retry = false;
    Client::try_from(config).map_err(|source| ConnectError::Client(source.into()))
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
        Some(path) => {
            let source = Source::new(&path.to_string_lossy(), from_disk());
            source.config(source.load()?).await
        }
        None => Config::incluster().map_err(|source| ConnectError::InCluster(Box::new(source))),
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

    // covers: C07
    #[test]
    fn the_server_is_that_of_the_current_context() {
        let read = |text: &'static str| -> ReadFile { Arc::new(move |_| Ok(text.into())) };
        let two = "current-context: b\n\
                   contexts: [{name: a, context: {cluster: x, user: u}}, \
                   {name: b, context: {cluster: y, user: u}}]\n\
                   clusters: [{name: x, cluster: {server: 'https://x'}}, \
                   {name: y, cluster: {server: 'https://api-int.y:6443'}}]\n";
        let found = server("/etc/kubernetes/kubeconfig", read(two)).unwrap();
        assert_eq!(found.as_deref(), Some("https://api-int.y:6443"));
        assert_eq!(server("/k", read("kind: Config\n")).unwrap(), None);
        let gone: ReadFile = Arc::new(|_| Err(std::io::ErrorKind::NotFound.into()));
        let error = server("/etc/kubernetes/kubeconfig", gone).unwrap_err();
        assert_eq!(error.to_string(), "cannot use kubeconfig /etc/kubernetes/kubeconfig");
    }
}
