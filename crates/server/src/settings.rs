//! What whoever starts the server decides.

use std::{
    net::{Ipv6Addr, SocketAddr},
    time::Duration,
};

use crate::tls::{Certificate, Policy};

/// Port of HTTPS.
pub const SECURE_PORT: u16 = 22623;
/// Port of plain HTTP.
pub const PLAIN_PORT: u16 = 22624;

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of HTTPS; port 0 takes any that is free.
    pub secure: SocketAddr,
    /// Address of plain HTTP, if there is to be one.
    pub plain: Option<SocketAddr>,
    /// What the server shows for itself.
    pub certificate: Certificate,
    /// Which TLS it speaks.
    pub policy: Policy,
    /// How much of the machine others may use up.
    pub limits: Limits,
}

impl Settings {
    /// The reference's ports on all interfaces.
    #[must_use]
    pub fn new(certificate: Certificate) -> Self {
        Self {
            secure: all_interfaces(SECURE_PORT),
            plain: Some(all_interfaces(PLAIN_PORT)),
            certificate,
            policy: Policy::default(),
            limits: Limits::default(),
        }
    }
}

/// That port on every interface, of IPv4 too where the machine has IPv6.
#[must_use]
pub fn all_interfaces(port: u16) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, port).into()
}

/// How much of the machine others may use up. Anybody on the network can connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time and address; further ones wait in the kernel's queue.
    pub connections: usize,
    /// From the connection to the end of the TLS handshake.
    pub handshake: Duration,
    /// From the handshake or the last answer to the end of the next request's headers.
    pub headers: Duration,
    /// From the connection to its end; a machine that takes longer asks again.
    pub connection: Duration,
    /// Bytes of one request's headers.
    pub header_bytes: usize,
    /// What answers under way get to finish when the server is to stop.
    pub drain: Duration,
    /// Documents that are kept.
    pub documents: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A thousand machines that boot together, at some 50 KiB for each connection.
            connections: 1024,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(10),
            // A document of 1.5 MB over 40 kbit/s.
            connection: Duration::from_mins(5),
            // Ignition sends a few hundred.
            header_bytes: 16 * 1024,
            drain: Duration::from_secs(10),
            // A dozen pools, each asked for in two or three versions; 1.5 MB each at the most.
            documents: 32,
        }
    }
}
