//! The HTTPS listener. Accepts connections on loopback only and authenticates callers by client
//! certificate or token.

mod auth;
mod connections;
mod dir;
mod kubeconfig;
mod tls;

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{
    failure::Failure,
    server::{self, Body},
    service::{ApiServer, Settings, StartError},
};
use auth::TokenAuthenticator;
use connections::{Admitted, Connections, Limits};

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the request line and the headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of the open connections. A client that has not authenticated sends a request at once, so
/// that few of them are open at a time.
const LIMITS: Limits = Limits { all: 4096, unknown: 256 };

/// Time that open requests get to finish when the server stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Name of the database file in the state directory.
const STATE_FILE: &str = "state.redb";

/// Name of the kubeconfig in the state directory.
const KUBECONFIG: &str = "kubeconfig";

/// An error that prevents the listener from starting.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is not a loopback address.
    #[error("{0} is not a loopback address; the embedded API server listens on loopback only")]
    NotLoopback(SocketAddr),
    /// The address could not be bound, for example because the port is in use.
    #[error("failed to listen on {address}")]
    Bind {
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file of the state directory could not be read or written.
    #[error("failed to access {}", path.display())]
    Directory {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A key or certificate could not be created or read.
    #[error("failed to create the certificates: {0}")]
    Certificates(String),
    /// The database could not be opened.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A bound listener that does not serve requests yet.
pub struct Listener {
    api: ApiServer,
    socket: TcpListener,
    address: SocketAddr,
    kubeconfig: PathBuf,
    acceptor: TlsAcceptor,
    authenticator: Arc<TokenAuthenticator>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Opens the API server whose database is in the directory `dir`, which is created if it is
    /// missing.
    pub async fn open_dir(dir: &Path, settings: Settings) -> Result<Self, ListenError> {
        dir::make(dir)?;
        dir::reserve(dir, STATE_FILE)?;
        Ok(Self::open(&dir.join(STATE_FILE), settings).await?)
    }
}

impl Listener {
    /// Binds to a loopback address. Keys, token and kubeconfig, with the context `mco`, are stored in
    /// `dir`.
    pub async fn bind(
        api: ApiServer,
        dir: &Path,
        address: SocketAddr,
    ) -> Result<Self, ListenError> {
        Self::bind_as("mco", api, dir, address).await
    }

    /// Binds to a loopback address. Keys, token and kubeconfig, with the context `context`, are stored
    /// in `dir`.
    ///
    /// Port 0 selects the port of the last listener in `dir`, so that kubeconfigs that were copied stay
    /// valid, or a free one if there was none or its port is taken.
    pub async fn bind_as(
        context: &str,
        api: ApiServer,
        dir: &Path,
        address: SocketAddr,
    ) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let bind = |source| ListenError::Bind { address, source };
        dir::make(dir)?;
        let last = dir::read(dir, KUBECONFIG)?.and_then(|text| kubeconfig::address(&text));
        let socket = match last.filter(|last| address.port() == 0 && last.ip() == address.ip()) {
            Some(last) => TcpListener::bind(last).await.ok(),
            None => None,
        };
        let socket = match socket {
            Some(socket) => socket,
            None => TcpListener::bind(address).await.map_err(bind)?,
        };
        let address = socket.local_addr().map_err(bind)?;
        let authority = tls::Authority::open(dir)?;
        let token = dir::read_or_create(dir, "token", || Ok(auth::new_token()))?;
        let admin = authority.client("system:admin", "system:masters")?;
        let text = kubeconfig::text(context, address, authority.certificate(), &admin, &token);
        let kubeconfig = dir::write(dir, KUBECONFIG, text.as_bytes())?;
        let acceptor = TlsAcceptor::from(authority.server(address.ip())?);
        let authenticator = Arc::new(TokenAuthenticator::new(token));
        Ok(Self { api, socket, address, kubeconfig, acceptor, authenticator })
    }

    /// Returns the address that the listener is bound to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the path of the kubeconfig for this listener.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Serves requests until `stop` completes, then lets open requests finish.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let connections = Connections::new(LIMITS);
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.socket.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                // Accept fails mostly because the process is out of file descriptors: wait, then
                // try again.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if self.api.server.outage.lasts() {
                continue;
            }
            let Some(admitted) = connections.admit(peer.ip()) else {
                tracing::debug!(%peer, "Refused a connection: all others are in use");
                continue;
            };
            let connection = ClientConnection {
                api: self.api.clone(),
                acceptor: self.acceptor.clone(),
                authenticator: Arc::clone(&self.authenticator),
                admitted: Arc::new(admitted),
            };
            let watcher = graceful.watcher();
            tokio::spawn(async move {
                let state = Arc::clone(&connection.admitted.connection);
                let api = connection.api.clone();
                tokio::select! {
                    () = connection.serve(stream, watcher) => {}
                    () = state.closed() => {}
                    () = api.server.outage.begun() => {}
                }
            });
        }
        drop(self.socket);
        self.api.stop();
        let _ = tokio::time::timeout(SHUTDOWN_GRACE, graceful.shutdown()).await;
    }
}

/// A client connection, from TLS handshake to its end.
struct ClientConnection {
    api: ApiServer,
    acceptor: TlsAcceptor,
    authenticator: Arc<TokenAuthenticator>,
    admitted: Arc<Admitted>,
}

impl ClientConnection {
    async fn serve(self, stream: TcpStream, watcher: hyper_util::server::graceful::Watcher) {
        let _ = stream.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = handshake else {
            tracing::debug!("TLS handshake of a client failed or timed out");
            return;
        };
        let peer = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certified = peer.and_then(|certificate| auth::certified(certificate));
        if certified.is_some() {
            self.admitted.connection.authenticate();
        }
        let (api, authenticator, admitted) = (self.api, self.authenticator, self.admitted);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (api, admitted) = (api.clone(), Arc::clone(&admitted));
            let open = auth::is_open(request.method(), request.uri().path());
            let mut caller =
                certified.clone().or_else(|| authenticator.authenticate(request.headers()));
            if caller.is_none()
                && let Some((account, claims)) = api.server.account_of(request.headers())
            {
                request.extensions_mut().insert(claims);
                caller = Some(account);
            }
            async move {
                let response = match caller {
                    Some(caller) => {
                        let busy = admitted.begin();
                        let response = api.server.handle(request, caller).await;
                        response.map(|body| while_held(body, busy))
                    }
                    None if open => api.server.handle(request, auth::anonymous()).await,
                    None => server::refuse(&Failure::unauthorized()),
                };
                Ok::<Response<Body>, Infallible>(response)
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(HEADER_TIMEOUT));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%error, "Connection closed with an error");
        }
    }
}

/// Keeps a value until the last part of a body was sent.
fn while_held(body: Body, held: impl Send + 'static) -> Body {
    body.map_frame(move |frame| {
        let _ = &held;
        frame
    })
    .boxed_unsync()
}
