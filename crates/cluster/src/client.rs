//! Connections to the API server.

mod choice;
mod deadline;
mod identity;
mod metrics;
mod renew;
mod retry;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Request, Response};
pub use kube::Client;
use kube::{Config, client::Body};
use mco_api::label;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use self::renew::{ReloadingClient, Source};
pub use self::{
    choice::{ChoiceError, ChosenCluster, ClusterChoice, Environment, connect_in_pod},
    deadline::{Deadline, Deadlines, TimedOut},
    identity::Identity,
    metrics::RequestMetrics,
    renew::ReadFile,
};
use crate::CallError;

/// Path of the kubeconfig that is made of the service account of a pod. No file has this path; the
/// files beside it are those of the service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/kubeconfig";

/// A failure to create a client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig is invalid.
    #[error("invalid kubeconfig {}", path.display())]
    Kubeconfig {
        /// Path of the kubeconfig.
        path: PathBuf,
        /// The cause.
        source: Box<kube::config::KubeconfigError>,
    },
    /// The process has neither a kubeconfig nor a service account.
    #[error(
        "no kubeconfig was given, and the process does not run in a pod with a service account"
    )]
    InCluster(#[source] Box<kube::config::InClusterError>),
    /// The address of the API server is invalid.
    #[error("invalid address of the API server: {server:?}")]
    Server {
        /// The address.
        server: String,
        /// The cause.
        source: http::uri::InvalidUri,
    },
    /// The configuration does not make a client.
    #[error("failed to create a client for the API server")]
    Client(#[source] CallError),
}

/// Settings of a client.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Name of the process in audit logs and managed fields.
    pub identity: Identity,
    /// Time limits of each request.
    pub deadlines: Deadlines,
    /// Counts of the requests.
    pub metrics: RequestMetrics,
    /// Namespace of the installation that the process belongs to; that of the kubeconfig if `None`.
    pub namespace: Option<String>,
}

/// Returns a client for the cluster that `kubeconfig` names, or for the cluster whose pod this
/// process is.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    connect_with(kubeconfig, &Options::default()).await
}

/// Like [`connect`], with settings.
pub async fn connect_with(
    kubeconfig: Option<&Path>,
    options: &Options,
) -> Result<Client, ConnectError> {
    match kubeconfig {
        Some(path) => connect_through(&path.to_string_lossy(), from_disk(), options).await,
        None => connect_as_pod(None, options).await,
    }
}

/// Returns a client for a kubeconfig and reloads it when its files change. Files are read by
/// `read`.
pub async fn connect_through(
    kubeconfig: &str,
    read: ReadFile,
    options: &Options,
) -> Result<Client, ConnectError> {
    use_ring();
    let source = Source::new(kubeconfig, read);
    let (renewing, namespace) = ReloadingClient::new(source, options.deadlines.connect).await?;
    let service = tower::service_fn(move |request| renewing.clone().send(request));
    Ok(over(service, options.namespace.as_ref().unwrap_or(&namespace), options))
}

/// Returns a client for the cluster whose pod this process is, at the address `server` if one is
/// given: the address that pods are given may depend on what runs on this very machine.
///
/// Follows the token and the CA bundle of the service account when the kubelet replaces them.
pub async fn connect_as_pod(
    server: Option<&str>,
    options: &Options,
) -> Result<Client, ConnectError> {
    let config = Config::incluster().map_err(|source| ConnectError::InCluster(Box::new(source)))?;
    let server = match server {
        Some(server) => server
            .parse()
            .map_err(|source| ConnectError::Server { server: server.to_owned(), source })?,
        None => config.cluster_url,
    };
    let read = service_account(&server, &config.default_namespace, from_disk());
    connect_through(SERVICE_ACCOUNT, read, options).await
}

/// Returns a reader that makes a kubeconfig of a pod's service account at [`SERVICE_ACCOUNT`], and
/// reads all other files by `read`.
fn service_account(server: &http::Uri, namespace: &str, read: ReadFile) -> ReadFile {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "pod",
        "contexts": [{"name": "pod",
            "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}],
        "clusters": [{"name": "pod",
            "cluster": {"server": server.to_string(), "certificate-authority": "ca.crt"}}],
        "users": [{"name": "pod", "user": {"tokenFile": "token"}}],
    })
    .to_string();
    Arc::new(
        move |path: &str| {
            if path == SERVICE_ACCOUNT { Ok(kubeconfig.clone().into_bytes()) } else { read(path) }
        },
    )
}

/// Returns a client that sends its requests through `transport`, with deadlines and retries.
pub fn over<S>(transport: S, namespace: &str, options: &Options) -> Client
where
    S: Service<
            Request<Body>,
            Response = Response<Body>,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static,
{
    let options = Arc::new(options.clone());
    let service =
        tower::service_fn(move |request| retry::send(transport.clone(), options.clone(), request));
    Client::new(service, namespace)
}

/// Returns the client of an installation in `namespace`.
#[must_use]
pub fn in_namespace(client: Client, namespace: &str) -> Client {
    Client::new(service(client), namespace)
}

/// Returns the namespace of the installation that a client belongs to. It is the standard one for a
/// client whose kubeconfig names none: no installation is in Kubernetes's namespace `default`.
#[must_use]
pub fn namespace(client: &Client) -> &str {
    match client.default_namespace() {
        "" | "default" => label::NAMESPACE,
        namespace => namespace,
    }
}

/// Returns the address of the API server in a kubeconfig whose files are read by `read`.
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

/// Returns a client without rate limits and retries of its own: the API server has priority and
/// fairness, and [`retry`] repeats requests.
fn plain(mut config: Config, connect: Duration) -> Result<Client, ConnectError> {
    config.default_retry = false;
    config.connect_timeout = Some(connect);
    Client::try_from(config).map_err(|source| ConnectError::Client(source.into()))
}

/// Returns the client as a service that layers can be put around.
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

/// Returns the PEM certificates that verify the API server's certificate; empty if the system's
/// trust store is used.
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
    // Fails if a provider is installed already, which can only be this one: the tree has no other.
    drop(rustls::crypto::ring::default_provider().install_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_follows_the_token_and_the_authority_of_its_service_account() {
        let folder = "/var/run/secrets/kubernetes.io/serviceaccount";
        for (token, authority) in [("one", "A"), ("two", "B")] {
            let read: ReadFile = Arc::new(move |path: &str| match path.strip_prefix(folder) {
                Some("/token") => Ok(token.into()),
                Some("/ca.crt") => Ok(authority.into()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            });
            let server = "https://10.0.0.1:443".parse().unwrap();
            let source = Source::new(SERVICE_ACCOUNT, service_account(&server, "n", read));
            let loaded = source.load().unwrap();
            assert_eq!(loaded["users"][0]["user"]["token"], token);
            let cluster = &loaded["clusters"][0]["cluster"];
            assert_eq!(cluster["certificate-authority-data"], STANDARD.encode(authority));
            assert_eq!(cluster["server"], "https://10.0.0.1:443/");
            assert_eq!(loaded["contexts"][0]["context"]["namespace"], "n");
        }
    }

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
        assert_eq!(error.to_string(), "invalid kubeconfig /etc/kubernetes/kubeconfig");
    }
}
