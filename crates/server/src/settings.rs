//! Settings of the server.

use std::{
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use mco_cluster::tls::Policy;

use crate::{Admission, metrics::Metrics, tls::Certificate};

/// Port of HTTPS.
pub const SECURE_PORT: u16 = 22623;
/// Port of plain HTTP.
pub const PLAIN_PORT: u16 = 22624;

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of HTTPS; port 0 takes any free port.
    pub secure: SocketAddr,
    /// Address of plain HTTP; `None` disables it.
    pub plain: Option<SocketAddr>,
    /// The serving certificate.
    pub certificate: Certificate,
    /// TLS versions and cipher suites.
    pub policy: Policy,
    /// Limits on the resources that clients may use.
    pub limits: Limits,
    /// Metrics of requests and connections.
    pub metrics: Metrics,
    /// Admission of machines by join tokens; `None` serves every machine.
    pub admission: Option<Arc<Admission>>,
}

impl Settings {
    /// Returns settings with the reference's ports on all interfaces.
    #[must_use]
    pub fn new(certificate: Certificate) -> Self {
        Self {
            secure: all_interfaces(SECURE_PORT),
            plain: Some(all_interfaces(PLAIN_PORT)),
            certificate,
            policy: Policy::default(),
            limits: Limits::default(),
            metrics: Metrics::default(),
            admission: None,
        }
    }
}

/// Returns that port on all interfaces, IPv4 included if the machine has IPv6.
#[must_use]
pub fn all_interfaces(port: u16) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, port).into()
}

/// Limits on the resources that clients may use. Any host on the network can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent connections of each listener; a further one replaces one of the address that has
    /// the most.
    pub connections: usize,
    /// Concurrent connections of one address, or of one IPv6 network of 64 bits.
    pub connections_per_address: usize,
    /// From the connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// From the handshake or the last response to the end of the next request's headers.
    pub headers: Duration,
    /// From the last response to the moment at which the connection's buffers are freed.
    pub idle: Duration,
    /// From the connection to its end; a machine that takes longer retries.
    pub connection: Duration,
    /// Bytes of one request's headers.
    pub header_bytes: usize,
    /// Time for requests in flight to finish at shutdown.
    pub drain: Duration,
    /// Number of cached documents.
    pub documents: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A thousand machines that boot together, at some 50 KiB for each connection.
            connections: 1024,
            // Machines behind a load balancer all have its address.
            connections_per_address: 768,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(10),
            // A client that sends requests one after the other is faster.
            idle: Duration::from_millis(50),
            // A document of 1.5 MB over 40 kbit/s.
            connection: Duration::from_mins(5),
            // Ignition sends a few hundred.
            header_bytes: 16 * 1024,
            drain: Duration::from_secs(10),
            // A dozen pools, each requested in two or three versions; at most 1.5 MB each.
            documents: 32,
        }
    }
}
