//! The server's certificate and key, reloaded when their files change.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use mco_cluster::report;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tracing::{info, warn};

/// Location of the certificate and its key.
#[derive(Clone)]
pub enum Certificate {
    /// Files that may change at any time.
    Files {
        /// The certificate chain, as PEM.
        chain: PathBuf,
        /// The key, as PEM.
        key: PathBuf,
        /// Interval between two reads.
        poll: Duration,
    },
    /// PEM text that does not change.
    Inline {
        /// The certificate chain, as PEM.
        chain: String,
        /// The key, as PEM.
        key: String,
    },
}

/// Default interval between two reads of the files; the reference's.
const POLL: Duration = Duration::from_secs(10);

impl Certificate {
    /// Returns a certificate in these files, read every ten seconds.
    #[must_use]
    pub fn files(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self::Files { chain: chain.into(), key: key.into(), poll: POLL }
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { chain, key, .. } => {
                f.debug_struct("Files").field("chain", chain).field("key", key).finish()
            }
            Self::Inline { .. } => f.write_str("Inline"),
        }
    }
}

/// An invalid certificate or key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The certificate is not PEM.
    #[error("the certificate is not PEM")]
    Chain(#[source] rustls::pki_types::pem::Error),
    /// The file contains no certificate.
    #[error("no certificate found")]
    NoCertificate,
    /// The key is not PEM.
    #[error("the key is not PEM")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// The key does not match the certificate, or its type is not supported.
    #[error("certificate and key do not match, or their type is not supported")]
    Pair(#[source] rustls::Error),
}

/// The current serving certificate.
#[derive(Debug)]
pub(crate) struct ServingCertificate {
    certificate: Certificate,
    pair: RwLock<Arc<CertifiedKey>>,
}

impl ServingCertificate {
    /// Loads the certificate; an invalid one is an error.
    pub(crate) async fn open(certificate: Certificate) -> Result<Arc<Self>, CertificateError> {
        let pair = match &certificate {
            Certificate::Files { chain, key, .. } => pair(&read(chain).await?, &read(key).await?)?,
            Certificate::Inline { chain, key } => pair(chain.as_bytes(), key.as_bytes())?,
        };
        Ok(Arc::new(Self { certificate, pair: RwLock::new(Arc::new(pair)) }))
    }

    /// Reloads the files periodically; never returns. An invalid pair changes nothing.
    pub(crate) async fn run_reload(&self) {
        let Certificate::Files { chain, key, poll } = &self.certificate else {
            return std::future::pending().await;
        };
        let mut reported: Option<String> = None;
        loop {
            tokio::time::sleep(*poll).await;
            match self.reload(chain, key).await {
                Ok(Reload::Unchanged) => reported = None,
                Ok(Reload::Changed) => {
                    info!(certificate = %chain.display(), "Certificate reloaded");
                    reported = None;
                }
                Err(error) => {
                    let error = report::chain(&error);
                    // Once, and not every ten seconds.
                    if reported.as_ref() != Some(&error) {
                        warn!(error, "Failed to reload the certificate; still serving the old one");
                        reported = Some(error);
                    }
                }
            }
        }
    }

    async fn reload(&self, chain: &Path, key: &Path) -> Result<Reload, CertificateError> {
        let new = pair(&read(chain).await?, &read(key).await?)?;
        let mut known = self.pair.write().unwrap_or_else(PoisonError::into_inner);
        if known.cert == new.cert {
            return Ok(Reload::Unchanged);
        }
        *known = Arc::new(new);
        Ok(Reload::Changed)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Reload {
    Unchanged,
    Changed,
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let named = |source| CertificateError::Read { path: path.to_owned(), source };
    tokio::fs::read(path).await.map_err(named)
}

fn pair(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(CertificateError::Chain)?;
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(CertificateError::Key)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(CertificateError::Pair)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "writes certificates to a temporary folder")]
mod tests {
    use rcgen::CertifiedKey as Made;

    use super::*;

    fn made() -> (String, String) {
        let Made { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    // covers: S07
    #[tokio::test]
    async fn an_invalid_pair_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let write = |chain_text: &str, key_text: &str| {
            std::fs::write(&chain, chain_text).unwrap();
            std::fs::write(&key, key_text).unwrap();
        };
        let ((old_chain, old_key), (new_chain, new_key)) = (made(), made());
        write(&old_chain, &old_key);
        let serving = ServingCertificate::open(Certificate::files(&chain, &key)).await.unwrap();
        let shown = || serving.pair.read().unwrap().cert.clone();
        let old = shown();

        // The first is a pair of which only one half has been written.
        let broken = [(&*new_chain, &*old_key), ("", &*old_key), (&*new_chain, "no key")];
        for (chain_text, key_text) in broken {
            write(chain_text, key_text);
            serving.reload(&chain, &key).await.unwrap_err();
            assert_eq!(shown(), old);
        }
        std::fs::remove_file(&key).unwrap();
        serving.reload(&chain, &key).await.unwrap_err();
        assert_eq!(shown(), old);

        write(&old_chain, &old_key);
        assert_eq!(serving.reload(&chain, &key).await.unwrap(), Reload::Unchanged);
        write(&new_chain, &new_key);
        assert_eq!(serving.reload(&chain, &key).await.unwrap(), Reload::Changed);
        assert_ne!(shown(), old);
    }

    #[test]
    fn a_key_is_hidden_in_logs() {
        let (chain, key) = made();
        assert_eq!(format!("{:?}", Certificate::Inline { chain, key }), "Inline");
    }
}
