//! TLS of the server: its protocol and the serving certificate.

mod certificate;

use std::sync::Arc;

use mco_cluster::tls::Policy;
use rustls::server::NoServerSessionStorage;
use tokio_rustls::TlsAcceptor;

pub(crate) use certificate::ServingCertificate;
pub use certificate::{Certificate, CertificateError};

/// The only protocol: HTTP/2 is of no use to a client that sends one request, and adds code that
/// any host can reach.
const PROTOCOL: &[u8] = b"http/1.1";

/// Builds an acceptor for `policy` that serves the current `certificate`.
pub(crate) fn acceptor(policy: &Policy, certificate: Arc<ServingCertificate>) -> TlsAcceptor {
    let mut config = policy.server().with_no_client_auth().with_cert_resolver(certificate);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A machine connects once, so no session is worth its memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    TlsAcceptor::from(Arc::new(config))
}
