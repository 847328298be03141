//! The server's certificate authority. Its key and certificate are stored; server and client
//! certificates are issued at each start.

use std::{net::IpAddr, path::Path, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::{ListenError, dir};

/// The certificate authority for the server's and its clients' certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, both as PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

fn failed(error: impl std::fmt::Display) -> ListenError {
    ListenError::Certificates(error.to_string())
}

impl Authority {
    /// Reads the authority stored in `dir`, or creates one there.
    pub(super) fn open(dir: &Path) -> Result<Self, ListenError> {
        let key = dir::read_or_create(dir, "ca.key", || {
            Ok(KeyPair::generate().map_err(failed)?.serialize_pem())
        })?;
        let key = KeyPair::from_pem(&key).map_err(failed)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "mco-apiserver-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let pem = dir::read_or_create(dir, "ca.crt", || {
            Ok(params.self_signed(&key).map_err(failed)?.pem())
        })?;
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Returns the authority's certificate as PEM.
    pub(super) fn certificate(&self) -> &str {
        &self.pem
    }

    /// Issues a client certificate.
    pub(super) fn client(&self, user: &str, group: &str) -> Result<Pair, ListenError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Pair, ListenError> {
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Builds the TLS configuration of the server. Client certificates are verified but not
    /// required.
    pub(super) fn server(&self, address: IpAddr) -> Result<Arc<ServerConfig>, ListenError> {
        let names = ["localhost", "kubernetes", "kubernetes.default"].map(str::to_owned);
        let mut names = names.to_vec();
        names.push(address.to_string());
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, "mco-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = self.sign(&params)?;
        let chain =
            vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).map_err(failed)?];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(failed)?;
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).map_err(failed)?;
        roots.add(root).map_err(failed)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(failed)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(failed)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
