//! A listening address: accepts connections, bounded in number and in time.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use mco_cluster::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::{admission, service::Service, settings::Limits, source::Source};

/// Delay after a failed accept, for example when the process has no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A listening socket.
pub(crate) struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    limits: Limits,
}

impl Listener {
    pub(crate) async fn open(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        limits: Limits,
    ) -> io::Result<Self> {
        Ok(Self { socket: bind(address).await?, tls, limits })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until shutdown is requested, then lets requests in flight finish.
    pub(crate) async fn serve<S: Source>(self, service: Arc<Service<S>>, shutdown: &Shutdown) {
        if let Ok(address) = self.address() {
            info!(%address, tls = self.tls.is_some(), "Launching server");
        }
        let connections = GracefulShutdown::new();
        let permits = Arc::new(Semaphore::new(self.limits.connections));
        loop {
            // The permit first: connections beyond the limit wait in the kernel's queue and cost
            // nothing here.
            let (permit, (stream, peer)) = tokio::select! {
                () = shutdown.requested() => break,
                accepted = async {
                    let permit = permits.clone().acquire_owned().await;
                    let permit = permit.expect("the semaphore is never closed");
                    (permit, self.accept().await)
                } => accepted,
            };
            let connection = Connection {
                service: service.clone(),
                limits: self.limits,
                tls: self.tls.clone(),
                peer,
                watcher: connections.watcher(),
                shutdown: shutdown.clone(),
            };
            let limit = self.limits.connection;
            tokio::spawn(async move {
                if timeout(limit, connection.serve(stream)).await.is_err() {
                    debug!(%peer, "Connection timed out");
                }
                drop(permit);
            });
        }
        drop(self.socket);
        if timeout(self.limits.drain, connections.shutdown()).await.is_err() {
            warn!("Stopped with requests in flight");
        }
    }

    async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.socket.accept().await {
                // An IPv4 address that arrived over IPv6 is shown as IPv4.
                Ok((stream, peer)) => {
                    return (stream, SocketAddr::new(peer.ip().to_canonical(), peer.port()));
                }
                Err(error) => {
                    debug!(%error, "Failed to accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        // A machine without IPv6 listens on all IPv4 interfaces.
        Err(error)
            if address.is_ipv6()
                && address.ip().is_unspecified()
                && error.kind() != io::ErrorKind::AddrInUse =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        other => other,
    }
}

/// State of one connection.
struct Connection<S> {
    service: Arc<Service<S>>,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    peer: SocketAddr,
    watcher: Watcher,
    shutdown: Shutdown,
}

impl<S: Source> Connection<S> {
    async fn serve(self, stream: TcpStream) {
        // Responses are sent in one piece; waiting for more data gains nothing.
        drop(stream.set_nodelay(true));
        let Some(tls) = &self.tls else {
            if self.service.admission.as_ref().is_some_and(|found| found.is_required()) {
                return;
            }
            return self.http(stream).await;
        };
        let handshake = tokio::select! {
            () = self.shutdown.requested() => return,
            handshake = timeout(self.limits.handshake, tls.accept(stream)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => self.http(stream).await,
            Ok(Err(error)) => debug!(peer = %self.peer, %error, "TLS handshake failed"),
            Err(_) => debug!(peer = %self.peer, "TLS handshake timed out"),
        }
    }

    async fn http(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let Self { service, limits, peer, watcher, tls, .. } = self;
        let is_secure = tls.is_some();
        let handler = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let service = service.clone();
            async move {
                // The body is dropped unread; a client that sends one with a rejected method is
                // disconnected.
                let (parts, body) = request.into_parts();
                if let Some(admission) = &service.admission {
                    if !is_secure && admission.is_required() {
                        return Err(io::Error::other(
                            "plain HTTP is closed: join tokens are required",
                        ));
                    }
                    if admission::is_report(&parts) {
                        return Ok(admission.report(&parts.headers, body, peer).await);
                    }
                }
                let (method, uri) = (&parts.method, &parts.uri);
                Ok(service.respond(method, uri, &parts.headers, peer).await)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.headers)
            .max_buf_size(limits.header_bytes)
            .serve_connection(TokioIo::new(stream), handler);
        if let Err(error) = watcher.watch(connection).await {
            debug!(%peer, %error, "Connection failed");
        }
    }
}
