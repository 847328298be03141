//! Which TLS the server speaks and what it shows for itself.

mod certificate;
mod policy;

use std::sync::Arc;

use rustls::{ServerConfig, crypto::ring};
use tokio_rustls::TlsAcceptor;

pub(crate) use certificate::Identity;
pub use certificate::{Certificate, CertificateError};
pub use policy::{Floor, Policy, PolicyError};

/// Only this: HTTP/2 is of no use to a client that asks once, and costs code that anybody can reach.
const PROTOCOL: &[u8] = b"http/1.1";

/// Accepts connections by `policy`, each with what `identity` is at that moment.
pub(crate) fn acceptor(policy: &Policy, identity: Arc<Identity>) -> TlsAcceptor {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| policy.allows(suite));
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(policy.versions())
        .expect("1.3 and its suites are always among those allowed");
    let mut config = config.with_no_client_auth().with_cert_resolver(identity);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}
