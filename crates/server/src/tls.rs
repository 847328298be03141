//! TLS of the server: versions, cipher suites and the serving certificate.

mod certificate;
mod policy;

use std::sync::Arc;

use rustls::{ServerConfig, crypto::ring, server::NoServerSessionStorage};
use tokio_rustls::TlsAcceptor;

pub(crate) use certificate::ServingCertificate;
pub use certificate::{Certificate, CertificateError};
pub use policy::{MinVersion, Policy, PolicyError};

/// The only protocol: HTTP/2 is of no use to a client that sends one request, and adds code that
/// any host can reach.
const PROTOCOL: &[u8] = b"http/1.1";

/// Builds an acceptor for `policy` that serves the current `certificate`.
pub(crate) fn acceptor(policy: &Policy, certificate: Arc<ServingCertificate>) -> TlsAcceptor {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| policy.allows(suite));
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(policy.versions())
        .expect("TLS 1.3 and its cipher suites are always allowed");
    let mut config = config.with_no_client_auth().with_cert_resolver(certificate);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // A machine connects once, so no session is worth its memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    TlsAcceptor::from(Arc::new(config))
}
