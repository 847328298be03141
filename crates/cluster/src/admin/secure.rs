//! The administrative listener for other machines: HTTPS, and metrics only for clients that the API
//! server authorizes.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use super::{
    Admin, Pages,
    access::{Access, Verdict},
    response,
};
use crate::{Shutdown, report::chain, tls::Policy};

/// Time that a client has for its handshake, and for the header of a request.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// Longest life of a connection. Prometheus opens a new one then.
const CONNECTION_LIMIT: Duration = Duration::from_mins(10);

/// Largest number of connections. Further ones wait.
const MAX_CONNECTIONS: usize = 64;

/// Delay after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Time between two attempts to bind an address that another program has.
const BIND_RETRY: Duration = Duration::from_secs(10);

/// Failure to prepare the listener.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// The certificate cannot be created.
    #[error("failed to create the certificate of the metrics")]
    Certificate(#[from] rcgen::Error),
    /// The certificate cannot be used.
    #[error("failed to use the certificate of the metrics")]
    Tls(#[from] rustls::Error),
}

/// The pages of a process for other machines.
///
/// `/metrics` is for clients with a token whose user may get the URL `/metrics`. `/livez` and `/readyz`
/// are for everyone, because the kubelet has no token; they tell no more than the kubelet reports.
/// `/state` is not served.
pub struct SecureAdmin {
    tls: TlsAcceptor,
    served: Arc<Served>,
}

/// Contents, and the check of clients.
struct Served {
    pages: Pages,
    access: Access,
}

impl std::fmt::Debug for SecureAdmin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecureAdmin").finish_non_exhaustive()
    }
}

impl Admin {
    /// Returns the same pages for other machines, with the TLS versions and cipher suites of `policy`.
    /// `client` asks the API server about the tokens of the machines.
    pub fn secure(&self, client: Client, policy: &Policy) -> Result<SecureAdmin, SecureError> {
        let pages = Pages { state: None, ..self.pages.clone() };
        let served = Arc::new(Served { pages, access: Access::new(client) });
        Ok(SecureAdmin { tls: acceptor(policy)?, served })
    }
}

impl SecureAdmin {
    /// Serves requests at `address` until shutdown. While another program has the address, the process
    /// runs without this listener.
    pub async fn serve(self, address: SocketAddr, shutdown: &Shutdown) {
        let bound = async {
            loop {
                match bind(address).await {
                    Ok(listener) => return listener,
                    Err(error) => {
                        warn!(%address, %error, "Failed to listen for metrics over HTTPS");
                    }
                }
                tokio::time::sleep(BIND_RETRY).await;
            }
        };
        let listener = tokio::select! {
            () = shutdown.requested() => return,
            listener = bound => listener,
        };
        if let Ok(address) = listener.local_addr() {
            info!(%address, "Serving metrics over HTTPS");
        }
        tokio::select! {
            () = shutdown.requested() => {}
            () = self.accept_all(&listener, shutdown) => {}
        }
    }

    async fn accept_all(&self, listener: &TcpListener, shutdown: &Shutdown) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let place = places.clone().acquire_owned().await;
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    debug!(%error, "Failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let (tls, served, stop) = (self.tls.clone(), self.served.clone(), shutdown.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.requested() => {}
                    _ = timeout(CONNECTION_LIMIT, served.connection(stream, &tls)) => {}
                }
                drop(place);
            });
        }
    }
}

impl Served {
    async fn connection(self: Arc<Self>, stream: TcpStream, tls: &TlsAcceptor) {
        let stream = match timeout(CLIENT_LIMIT, tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return debug!(%error, "TLS handshake failed"),
            Err(_) => return debug!("TLS handshake timed out"),
        };
        let answer = service_fn(move |request: Request<Incoming>| {
            let served = self.clone();
            async move {
                let (head, _) = request.into_parts();
                let path = head.uri.path();
                Ok::<_, Infallible>(served.answer(&head.method, path, &head.headers).await)
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(CLIENT_LIMIT);
        if let Err(error) = builder.serve_connection(TokioIo::new(stream), answer).await {
            debug!(%error, "Connection failed");
        }
    }

    async fn answer(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Response<Full<Bytes>> {
        let refuse = |status, text: &str| response((status, "text/plain", format!("{text}\n")));
        if method != Method::GET {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET is served");
        }
        if path != "/metrics" {
            return self.pages.answer(path);
        }
        match self.access.check(headers, path).await {
            Ok(Verdict::Granted) => self.pages.answer(path),
            Ok(Verdict::Unauthenticated) => {
                let mut refusal =
                    refuse(StatusCode::UNAUTHORIZED, "a valid bearer token is needed");
                let scheme = header::HeaderValue::from_static("Bearer");
                refusal.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
                refusal
            }
            Ok(Verdict::Forbidden) => refuse(
                StatusCode::FORBIDDEN,
                "the user of the token may not get the URL /metrics; bind a ClusterRole with this \
                 nonResourceURL",
            ),
            Err(error) => {
                warn!(error = chain(&error), "Failed to check the token of a client of /metrics");
                let text = "the API server did not answer the question about the token";
                refuse(StatusCode::SERVICE_UNAVAILABLE, text)
            }
        }
    }
}

/// Binds an address; all interfaces of IPv4 if it means all interfaces and the machine has no IPv6.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let is_any = address.is_ipv6() && address.ip().is_unspecified();
    match TcpListener::bind(address).await {
        Err(error) if is_any && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Returns an acceptor with a certificate of its own, which no client can verify. It keeps tokens from
/// being read on the way.
fn acceptor(policy: &Policy) -> Result<TlsAcceptor, SecureError> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let config = policy
        .server()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
