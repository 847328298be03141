//! The HTTPS listener: on loopback only, for callers that say who they are.

mod auth;
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
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    failure::Failure,
    review::Identity,
    server::{self, Body},
    service::{ApiServer, Settings, StartError},
};
use auth::Doorkeeper;

/// A client that does not finish its handshake in this time is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A client that does not finish its request line and headers in this time is dropped.
const HEADERS: Duration = Duration::from_secs(30);

/// How many connections are open at most; each watch of an HTTP/1 client takes one.
const CONNECTIONS: usize = 4096;

/// How long open requests may take to end when the server stops.
const GRACE: Duration = Duration::from_secs(5);

/// The state's file within the directory.
const STATE: &str = "state.redb";

/// Why the listener cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address can be reached from elsewhere.
    #[error("{0} is not a loopback address; the embedded API serves this machine only")]
    NotLoopback(SocketAddr),
    /// The port is taken, or the like.
    #[error("cannot listen on {address}")]
    Bind {
        /// Where it should listen.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The directory of keys and state cannot be used.
    #[error("cannot use {}", path.display())]
    Directory {
        /// Which file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A key or certificate cannot be made or read.
    #[error("cannot make the certificates: {0}")]
    Certificates(String),
    /// The state cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// A bound listener, not yet answering.
pub struct Listener {
    api: ApiServer,
    socket: TcpListener,
    address: SocketAddr,
    kubeconfig: PathBuf,
    acceptor: TlsAcceptor,
    doorkeeper: Arc<Doorkeeper>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Opens the API whose state is in the directory `dir`, made where it is missing.
    pub async fn open_dir(dir: &Path, settings: Settings) -> Result<Self, ListenError> {
        dir::make(dir)?;
        dir::reserve(dir, STATE)?;
        Ok(Self::open(&dir.join(STATE), settings).await?)
    }
}

impl Listener {
    /// Binds to a loopback address; keys, token and kubeconfig are kept in `dir`.
    pub async fn bind(
        api: ApiServer,
        dir: &Path,
        address: SocketAddr,
    ) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address));
        }
        let bind = |source| ListenError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bind)?;
        let address = socket.local_addr().map_err(bind)?;
        dir::make(dir)?;
        let authority = tls::Authority::open(dir)?;
        let token = dir::keep(dir, "token", || Ok(auth::new_token()))?;
        let admin = authority.client("system:admin", "system:masters")?;
        let text = kubeconfig::text(address, authority.certificate(), &admin, &token);
        let kubeconfig = dir::write(dir, "kubeconfig", text.as_bytes())?;
        let acceptor = TlsAcceptor::from(authority.server(address.ip())?);
        let doorkeeper = Arc::new(Doorkeeper::new(token));
        Ok(Self { api, socket, address, kubeconfig, acceptor, doorkeeper })
    }

    /// Where the API is reached.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kubeconfig that leads here.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Answers requests until `stop`, then lets open ones end.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let graceful = GracefulShutdown::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let permit = Arc::clone(&permits).acquire_owned();
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = async { (permit.await, self.socket.accept().await) } => accepted,
            };
            let (Ok(permit), Ok((stream, _))) = accepted else {
                // Out of file handles, most likely; the next one may be luckier.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let door = Door {
                api: self.api.clone(),
                acceptor: self.acceptor.clone(),
                doorkeeper: Arc::clone(&self.doorkeeper),
            };
            let watcher = graceful.watcher();
            tokio::spawn(async move {
                door.serve(stream, watcher).await;
                drop(permit);
            });
        }
        drop(self.socket);
        self.api.stop();
        let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
    }
}

/// One connection's way in.
struct Door {
    api: ApiServer,
    acceptor: TlsAcceptor,
    doorkeeper: Arc<Doorkeeper>,
}

impl Door {
    async fn serve(self, stream: TcpStream, watcher: hyper_util::server::graceful::Watcher) {
        let _ = stream.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = handshake else {
            tracing::debug!("A client did not finish its handshake");
            return;
        };
        let peer = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let certified = peer.and_then(|certificate| auth::certified(certificate));
        let (api, doorkeeper) = (self.api, self.doorkeeper);
        let service = service_fn(move |request: Request<Incoming>| {
            let (api, doorkeeper) = (api.clone(), Arc::clone(&doorkeeper));
            let certified = certified.clone();
            async move {
                Ok::<Response<Body>, Infallible>(
                    answer(&api, &doorkeeper, certified, request).await,
                )
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(HEADERS));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%error, "A connection ended early");
        }
    }
}

async fn answer(
    api: &ApiServer,
    doorkeeper: &Doorkeeper,
    certified: Option<Identity>,
    request: Request<Incoming>,
) -> Response<Body> {
    let open = auth::is_open(request.method(), request.uri().path());
    match certified.or_else(|| doorkeeper.by_token(request.headers())) {
        Some(who) => api.server.handle(request, who).await,
        None if open => api.server.handle(request, auth::anonymous()).await,
        None => server::refuse(&Failure::unauthorized()),
    }
}
