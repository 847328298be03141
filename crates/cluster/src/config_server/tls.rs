//! The trust of a new machine in the config server: certificates of authorities, or the hash of one
//! certificate that the server presents.

use std::{fmt, sync::Arc};

use ::ring::digest::{SHA256, digest};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{
        CertificateDer, ServerName, UnixTime,
        pem::{self, PemObject as _},
    },
};

/// The certificates that a machine trusts.
#[derive(Clone)]
pub struct Trust(Trusted);

#[derive(Clone)]
enum Trusted {
    Authorities(RootCertStore),
    Hash([u8; 32]),
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Trusted::Authorities(roots) => write!(f, "Trust({} authorities)", roots.len()),
            Trusted::Hash(_) => f.write_str("Trust(hash)"),
        }
    }
}

/// An unusable description of the trusted certificates.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The text is no certificate.
    #[error("the text is no certificate in PEM")]
    Pem(#[source] pem::Error),
    /// The text contains no certificate.
    #[error("the text contains no certificate")]
    Empty,
    /// A certificate cannot be an authority.
    #[error("a certificate cannot be used as an authority")]
    Authority(#[source] Error),
    /// The text is no hash.
    #[error("{0:?} is no SHA-256 hash of 64 hexadecimal digits")]
    Hash(String),
}

impl Trust {
    /// Trusts servers with a certificate of one of these authorities, in PEM.
    pub fn authorities(pem: &[u8]) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(TrustError::Pem)?;
            roots.add(certificate).map_err(TrustError::Authority)?;
        }
        if roots.is_empty() {
            Err(TrustError::Empty)
        } else {
            Ok(Self(Trusted::Authorities(roots)))
        }
    }

    /// Trusts servers that present a certificate with this SHA-256: their own, or that of the authority
    /// which signed it. The text has hexadecimal digits with or without colons, also as `openssl x509
    /// -fingerprint` prints them.
    pub fn hash(text: &str) -> Result<Self, TrustError> {
        let wrong = || TrustError::Hash(text.to_owned());
        let printed = text.split_once("Fingerprint=").map_or(text, |(_, digits)| digits);
        let digits = printed.strip_prefix("sha256:").unwrap_or(printed).replace(':', "");
        if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            let pair = digits.get(2 * index..2 * index + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(Self(Trusted::Hash(hash)))
    }

    /// Returns the settings of TLS.
    pub(super) fn client_config(&self) -> Arc<ClientConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions");
        let config = match &self.0 {
            Trusted::Authorities(roots) => {
                builder.with_root_certificates(roots.clone()).with_no_client_auth()
            }
            Trusted::Hash(hash) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Pinned { hash: *hash, provider }))
                .with_no_client_auth(),
        };
        Arc::new(config)
    }
}

/// Verifies that the server presents one certificate.
#[derive(Debug)]
struct Pinned {
    hash: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn matches(&self, certificate: &CertificateDer<'_>) -> bool {
        digest(&SHA256, certificate).as_ref() == self.hash
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The handshake proves that the server has the key of its own certificate.
        if self.matches(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let Some(authority) = intermediates.iter().find(|found| self.matches(found)) else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(roots.into(), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
