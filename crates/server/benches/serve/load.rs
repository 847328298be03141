//! Clients that send requests without pause over open connections.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Outcome, servers::Pair};

const REQUEST: &[u8] = b"GET /config/worker HTTP/1.1\r\nhost: localhost\r\n\
    accept: application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1\r\n\
    accept-encoding: identity\r\n\r\n";

/// Addresses that an idle crowd connects from. One address may not have all connections.
const ADDRESSES: u8 = 8;

/// A server under test.
#[derive(Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Target {
    pub(crate) fn new(address: SocketAddr, pair: &Pair) -> Outcome<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(pair.certificate.clone())?;
        let config = ClientConfig::builder_with_provider(ring::default_provider().into());
        let config = config.with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { address, connector: TlsConnector::from(Arc::new(config)) })
    }

    async fn connect(&self, last: u8) -> Outcome<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, last], 0).into())?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let stream = self.connector.connect(name, stream).await?;
        Ok(Connection { stream, buffer: vec![0; 64 << 10] })
    }

    /// Returns the body of one response.
    pub(crate) async fn fetch(&self) -> Outcome<Vec<u8>> {
        let mut body = Vec::new();
        self.connect(1).await?.request(|bytes| body.extend_from_slice(bytes)).await?;
        Ok(body)
    }

    /// Opens connections that have had a response and stay open.
    pub(crate) async fn idle_connections(&self, count: usize) -> Outcome<Vec<Connection>> {
        let mut connections = Vec::new();
        for (_, last) in (0..count).zip((2..2 + ADDRESSES).cycle()) {
            let mut connection = self.connect(last).await?;
            connection.request(|_| {}).await?;
            connections.push(connection);
        }
        Ok(connections)
    }
}

/// A connection of a client.
pub(crate) struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Connection {
    /// Sends a request and hands the body to `take`.
    async fn request(&mut self, mut take: impl FnMut(&[u8])) -> Outcome<()> {
        self.stream.write_all(REQUEST).await?;
        let mut head = Vec::new();
        let (end, mut rest) = loop {
            let read = self.read().await?;
            head.extend_from_slice(self.buffer.get(..read).unwrap_or_default());
            if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                break (end, head.split_off(end + 4));
            }
        };
        let head = String::from_utf8_lossy(head.get(..end).unwrap_or_default()).to_lowercase();
        if !head.starts_with("http/1.1 200") {
            return Err(head.into());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let mut missing: usize = length.ok_or("no content-length")?.trim().parse()?;
        loop {
            take(&rest);
            missing = missing.checked_sub(rest.len()).ok_or("more bytes than announced")?;
            if missing == 0 {
                return Ok(());
            }
            let read = self.read().await?;
            rest.clear();
            rest.extend_from_slice(self.buffer.get(..read).unwrap_or_default());
        }
    }

    async fn read(&mut self) -> Outcome<usize> {
        match self.stream.read(&mut self.buffer).await? {
            0 => Err("the server closed the connection".into()),
            read => Ok(read),
        }
    }
}

/// A number of clients for some time.
pub(crate) struct Load {
    connections: usize,
    duration: Duration,
}

/// The time of each request.
pub(crate) struct Found {
    latencies: Vec<Duration>,
    elapsed: Duration,
}

impl Load {
    pub(crate) fn new(connections: usize, duration: Duration) -> Self {
        Self { connections, duration }
    }

    pub(crate) async fn run(&self, target: &Target) -> Outcome<Found> {
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(target.connect(1).await?);
        }
        let (start, duration) = (Instant::now(), self.duration);
        let mut clients = JoinSet::new();
        for mut connection in connections {
            clients.spawn(async move {
                let mut latencies = Vec::new();
                while start.elapsed() < duration {
                    let begun = Instant::now();
                    let done = connection.request(|_| {}).await;
                    done.map_err(|error| error.to_string())?;
                    latencies.push(begun.elapsed());
                }
                Ok::<_, String>(latencies)
            });
        }
        let mut latencies = Vec::new();
        while let Some(client) = clients.join_next().await {
            latencies.extend(client??);
        }
        let elapsed = start.elapsed();
        latencies.sort_unstable();
        Ok(Found { latencies, elapsed })
    }
}

impl Found {
    pub(crate) fn requests(&self) -> usize {
        self.latencies.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        let requests = u32::try_from(self.requests()).unwrap_or(u32::MAX);
        f64::from(requests) / self.elapsed.as_secs_f64()
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let at = self.latencies.len() * percent / 100;
        let at = at.min(self.latencies.len().saturating_sub(1));
        self.latencies.get(at).copied().unwrap_or_default()
    }
}
