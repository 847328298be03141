//! A proxy in front of an API server that applies faults, for clients that connect over TLS.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use http::{Request, Uri, header};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::TlsAcceptor;

use super::Chaos;
use crate::pki::{Authority, Credentials, Pair};

/// A running proxy. It ends TLS with a certificate of its own, and sends requests on with the
/// credentials of the server's kubeconfig: those of its clients are not checked.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    kubeconfig: PathBuf,
    serving: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Its connections end with it.
        self.serving.abort();
    }
}

impl Proxy {
    /// Starts a proxy of the server of `kubeconfig`, and writes its own kubeconfig to `folder`.
    pub async fn start(chaos: &Chaos, kubeconfig: &Path, folder: &Path) -> anyhow::Result<Self> {
        mco_cluster::client::use_ring();
        let upstream = upstream(kubeconfig).await?;
        let authority = Authority::new("chaos")?;
        let pair = authority.server("chaos", &[Ipv4Addr::LOCALHOST.to_string()])?;
        let acceptor = TlsAcceptor::from(Arc::new(tls(&pair)?));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("failed to listen for clients")?;
        let address = listener.local_addr().context("failed to listen for clients")?;
        let file = folder.join("chaos.kubeconfig");
        let text = authority.kubeconfig(&format!("https://{address}"), Credentials::Token("none"));
        write(&file, &text)?;
        let serving = tokio::spawn(serve(chaos.clone(), upstream, listener, acceptor));
        Ok(Self { address, kubeconfig: file, serving })
    }

    /// Returns the URL of the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the path of the kubeconfig that leads to the proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

#[expect(clippy::disallowed_methods, reason = "writes the kubeconfig of the proxy")]
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

/// Returns a client that repeats nothing, waits for ever, and passes bodies on as they are.
async fn upstream(kubeconfig: &Path) -> anyhow::Result<Client> {
    let failed = || format!("invalid kubeconfig {}", kubeconfig.display());
    let file = Kubeconfig::read_from(kubeconfig).with_context(failed)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(failed)?;
    config.default_retry = false;
    config.read_timeout = None;
    config.disable_compression = true;
    Client::try_from(config).context("failed to create the client of the proxy")
}

fn tls(pair: &Pair) -> anyhow::Result<ServerConfig> {
    let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
    let config = ServerConfig::builder().with_no_client_auth();
    let certificates = vec![certificate.context("invalid certificate")?];
    config.with_single_cert(certificates, key.context("invalid key")?).context("invalid pair")
}

async fn serve(chaos: Chaos, upstream: Client, listener: TcpListener, acceptor: TlsAcceptor) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(chaos.clone(), upstream.clone(), acceptor.clone(), stream));
        while connections.try_join_next().is_some() {}
    }
}

/// Serves one connection. A request that fails ends it without an answer.
async fn connection(chaos: Chaos, upstream: Client, acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request: Request<Incoming>| {
        let (chaos, upstream) = (chaos.clone(), upstream.clone());
        async move { chaos.pass(upstream, received(request).await?).await }
    });
    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // Fails when a fault or the client ends it.
    drop(served.await);
}

/// Returns the request as the upstream client sends it: whole, and without the headers of this
/// connection.
async fn received(request: Request<Incoming>) -> io::Result<Request<Body>> {
    let (mut head, body) = request.into_parts();
    for name in [header::HOST, header::AUTHORIZATION, header::CONNECTION, header::ACCEPT_ENCODING] {
        head.headers.remove(name);
    }
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = Uri::try_from(path).map_err(io::Error::other)?;
    let body = body.collect().await.map_err(io::Error::other)?;
    Ok(Request::from_parts(head, Body::from(body.to_bytes())))
}
