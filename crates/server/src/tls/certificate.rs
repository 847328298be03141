//! The server's certificate and key, taken up anew when their files change.

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

/// Where the certificate and its key are.
#[derive(Clone)]
pub enum Certificate {
    /// In files that may change at any time.
    Files {
        /// The certificate and those that lead to its authority, as PEM.
        chain: PathBuf,
        /// The key, as PEM.
        key: PathBuf,
        /// How often to look whether they changed.
        poll: Duration,
    },
    /// Here, for as long as the server runs.
    Given {
        /// The certificate and those that lead to its authority, as PEM.
        chain: String,
        /// The key, as PEM.
        key: String,
    },
}

/// How often files are looked at unless told otherwise; the reference's interval.
const POLL: Duration = Duration::from_secs(10);

impl Certificate {
    /// In these files, looked at every ten seconds.
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
            Self::Given { .. } => f.write_str("Given"),
        }
    }
}

/// Why a certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is no certificate where one should be.
    #[error("the certificate is not PEM")]
    Chain(#[source] rustls::pki_types::pem::Error),
    /// There is nothing at all where a certificate should be.
    #[error("there is no certificate")]
    NoCertificate,
    /// There is no key where one should be.
    #[error("the key is not PEM")]
    Key(#[source] rustls::pki_types::pem::Error),
    /// They do not belong together, or are of a kind that is not built in.
    #[error("certificate and key cannot be used together")]
    Pair(#[source] rustls::Error),
}

/// What the server shows for itself at the moment.
#[derive(Debug)]
pub(crate) struct Identity {
    certificate: Certificate,
    pair: RwLock<Arc<CertifiedKey>>,
}

impl Identity {
    /// Takes up the certificate; one that cannot be used at the start is an error.
    pub(crate) async fn open(certificate: Certificate) -> Result<Arc<Self>, CertificateError> {
        let pair = match &certificate {
            Certificate::Files { chain, key, .. } => pair(&read(chain).await?, &read(key).await?)?,
            Certificate::Given { chain, key } => pair(chain.as_bytes(), key.as_bytes())?,
        };
        Ok(Arc::new(Self { certificate, pair: RwLock::new(Arc::new(pair)) }))
    }

    /// Looks at the files again and again, without end; a pair that cannot be used changes nothing.
    pub(crate) async fn keep_up(&self) {
        let Certificate::Files { chain, key, poll } = &self.certificate else {
            return std::future::pending().await;
        };
        let mut said: Option<String> = None;
        loop {
            tokio::time::sleep(*poll).await;
            match self.look(chain, key).await {
                Ok(Look::Same) => said = None,
                Ok(Look::Changed) => {
                    info!(certificate = %chain.display(), "Certificate reloaded");
                    said = None;
                }
                Err(error) => {
                    let error = report::chain(&error);
                    // Once, and not every ten seconds.
                    if said.as_ref() != Some(&error) {
                        warn!(error, "Cannot use the new certificate; the old one stays");
                        said = Some(error);
                    }
                }
            }
        }
    }

    async fn look(&self, chain: &Path, key: &Path) -> Result<Look, CertificateError> {
        let new = pair(&read(chain).await?, &read(key).await?)?;
        let mut known = self.pair.write().unwrap_or_else(PoisonError::into_inner);
        if known.cert == new.cert {
            return Ok(Look::Same);
        }
        *known = Arc::new(new);
        Ok(Look::Changed)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Look {
    Same,
    Changed,
}

impl ResolvesServerCert for Identity {
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
    async fn a_pair_that_cannot_be_used_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let write = |chain_text: &str, key_text: &str| {
            std::fs::write(&chain, chain_text).unwrap();
            std::fs::write(&key, key_text).unwrap();
        };
        let ((old_chain, old_key), (new_chain, new_key)) = (made(), made());
        write(&old_chain, &old_key);
        let identity = Identity::open(Certificate::files(&chain, &key)).await.unwrap();
        let shown = || identity.pair.read().unwrap().cert.clone();
        let old = shown();

        // The first is what a pair looks like of which only one half has been written.
        let broken = [(&*new_chain, &*old_key), ("", &*old_key), (&*new_chain, "no key")];
        for (chain_text, key_text) in broken {
            write(chain_text, key_text);
            identity.look(&chain, &key).await.unwrap_err();
            assert_eq!(shown(), old);
        }
        std::fs::remove_file(&key).unwrap();
        identity.look(&chain, &key).await.unwrap_err();
        assert_eq!(shown(), old);

        write(&old_chain, &old_key);
        assert_eq!(identity.look(&chain, &key).await.unwrap(), Look::Same);
        write(&new_chain, &new_key);
        assert_eq!(identity.look(&chain, &key).await.unwrap(), Look::Changed);
        assert_ne!(shown(), old);
    }

    #[test]
    fn a_key_is_hidden_in_logs() {
        let (chain, key) = made();
        assert_eq!(format!("{:?}", Certificate::Given { chain, key }), "Given");
    }
}
