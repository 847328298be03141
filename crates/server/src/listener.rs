//! A listening address: accepts connections, bounded in number, by address and in time.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use mco_cluster::Shutdown;
use tokio::{
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use crate::{
    activity::{ConnectionClock, Observed},
    connection_table::{Accepted, ConnectionKey, ConnectionLimits, ConnectionTable},
    exchange::Exchange,
    metrics::Metrics,
    service::Service,
    settings::Limits,
    source::Source,
};

/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Delay after an accept that failed for want of a file descriptor, in which a closed connection
/// returns its own.
const DESCRIPTOR_DELAY: Duration = Duration::from_millis(5);

/// Error numbers of Linux for a process, and for a system, without free file descriptors.
const NO_DESCRIPTORS: [i32; 2] = [24, 23];

/// A listening socket.
pub(crate) struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    open: OpenConnections,
}

/// The open connections of a listener. Clones share them.
#[derive(Clone)]
struct OpenConnections {
    table: Arc<Mutex<ConnectionTable>>,
    clock: ConnectionClock,
    metrics: Metrics,
    /// Name of the listener in metrics.
    listener: &'static str,
}

/// An open connection, which is removed from the table when the value is dropped.
struct OpenConnection {
    key: ConnectionKey,
    all: OpenConnections,
}

impl Listener {
    pub(crate) async fn open(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        limits: Limits,
        metrics: Metrics,
    ) -> io::Result<Self> {
        let listener = if tls.is_some() { "https" } else { "http" };
        let open = OpenConnections::new(limits, metrics, listener);
        Ok(Self { socket: bind(address).await?, tls, limits, open })
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
        loop {
            // Connections are accepted at any time: one that waits in the kernel's queue has no
            // address by which it could be preferred.
            let (stream, peer) = tokio::select! {
                () = shutdown.requested() => break,
                accepted = self.accept() => accepted,
            };
            let Some((open, accepted)) = self.open.add(peer) else { continue };
            let exchange = Exchange {
                service: service.clone(),
                limits: self.limits,
                peer,
                activity: accepted.activity.clone(),
                shutdown: shutdown.clone(),
                is_secure: self.tls.is_some(),
            };
            let connection =
                Connection { exchange, tls: self.tls.clone(), watcher: connections.watcher() };
            let stream = Observed::new(stream, accepted.activity, self.open.clock);
            let limit = self.limits.connection;
            tokio::spawn(async move {
                tokio::select! {
                    ended = timeout(limit, connection.serve(stream)) => {
                        if ended.is_err() {
                            debug!(%peer, "Connection timed out");
                        }
                    }
                    _ = accepted.closed => debug!(%peer, "Closed a connection to make room"),
                }
                drop(open);
            });
        }
        drop(self.socket);
        if timeout(self.limits.drain, connections.shutdown()).await.is_err() {
            warn!("Stopped with requests in flight");
        }
    }

    async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            let error = match self.socket.accept().await {
                // An IPv4 address that arrived over IPv6 is shown as IPv4.
                Ok((stream, peer)) => {
                    // Responses are sent in one piece; waiting for more data gains nothing.
                    drop(stream.set_nodelay(true));
                    return (stream, SocketAddr::new(peer.ip().to_canonical(), peer.port()));
                }
                Err(error) => error,
            };
            debug!(%error, "Failed to accept a connection");
            let needs_descriptor =
                error.raw_os_error().is_some_and(|code| NO_DESCRIPTORS.contains(&code));
            let freed = needs_descriptor && self.open.close_one();
            tokio::time::sleep(if freed { DESCRIPTOR_DELAY } else { ACCEPT_RETRY_DELAY }).await;
        }
    }
}

impl OpenConnections {
    fn new(limits: Limits, metrics: Metrics, listener: &'static str) -> Self {
        let (total, per_address) = (limits.connections.max(1), limits.connections_per_address);
        let limits = ConnectionLimits { total, per_address: per_address.max(1) };
        let table = Arc::new(Mutex::new(ConnectionTable::new(limits)));
        Self { table, clock: ConnectionClock::start(), metrics, listener }
    }

    /// Adds a connection; returns nothing if it must be closed at once.
    fn add(&self, peer: SocketAddr) -> Option<(OpenConnection, Accepted)> {
        let accepted = self.lock().accept(peer.ip(), self.clock.now());
        match accepted {
            Ok(accepted) => {
                self.metrics.connection_opened(self.listener);
                if accepted.is_replacement {
                    self.metrics.connection_replaced(self.listener);
                }
                Some((OpenConnection { key: accepted.key, all: self.clone() }, accepted))
            }
            Err(rejection) => {
                self.metrics.connection_rejected(self.listener, rejection.label());
                debug!(%peer, ?rejection, "Rejected a connection");
                None
            }
        }
    }

    fn close_one(&self) -> bool {
        let is_closed = self.lock().close_one();
        if is_closed {
            self.metrics.connection_replaced(self.listener);
        }
        is_closed
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.all.lock().remove(self.key);
        self.all.metrics.connection_closed(self.all.listener);
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

/// A connection before its handshake.
struct Connection<S> {
    exchange: Exchange<S>,
    tls: Option<TlsAcceptor>,
    /// Held until the connection ends; shutdown waits for it.
    watcher: Watcher,
}

impl<S: Source> Connection<S> {
    async fn serve(self, stream: Observed<TcpStream>) {
        let Self { exchange, tls, watcher: _watcher } = self;
        let Some(tls) = tls else {
            let admission = exchange.service.admission.as_ref();
            if admission.is_some_and(|admission| admission.is_required()) {
                return;
            }
            return exchange.run(stream).await;
        };
        let handshake = tokio::select! {
            () = exchange.shutdown.requested() => return,
            handshake = timeout(exchange.limits.handshake, tls.accept(stream)) => handshake,
        };
        match handshake {
            Ok(Ok(stream)) => exchange.run(stream).await,
            Ok(Err(error)) => debug!(peer = %exchange.peer, %error, "TLS handshake failed"),
            Err(_) => debug!(peer = %exchange.peer, "TLS handshake timed out"),
        }
    }
}
