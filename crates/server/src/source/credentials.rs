//! The token and certificate that a new kubelet comes to the API server with.
//!
//! They are files of a mounted Secret, which change when the token is renewed; so they are read
//! again and again, and never kept beyond a read that failed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use mco_core::goyaml::UnreadableText;

/// Why there is no kubeconfig to hand out.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The token is no text.
    #[error("the token in {} is not text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// The token or the address cannot be written.
    #[error("cannot write the kubeconfig")]
    Write(#[source] UnreadableText),
}

/// What the files held.
#[derive(Clone)]
pub(super) struct Held {
    /// The token.
    pub(super) token: Arc<str>,
    /// The certificates, or why there are none; others may stand in for them.
    pub(super) ca: Result<Arc<[u8]>, Arc<CredentialsError>>,
}

/// The files, and what they held when last read.
pub(super) struct Credentials {
    folder: PathBuf,
    held: RwLock<Result<Held, Arc<CredentialsError>>>,
}

/// How often the files are read again.
const POLL: Duration = Duration::from_secs(10);

impl Credentials {
    /// Reads the files for the first time.
    pub(super) async fn open(folder: PathBuf) -> Self {
        let held = read(&folder).await.map_err(Arc::new);
        Self { folder, held: RwLock::new(held) }
    }

    /// What the files held when last read.
    pub(super) fn held(&self) -> Result<Held, Arc<CredentialsError>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files again and again, without end.
    pub(super) async fn keep_up(&self) {
        loop {
            tokio::time::sleep(POLL).await;
            let held = read(&self.folder).await.map_err(Arc::new);
            *self.held.write().unwrap_or_else(PoisonError::into_inner) = held;
        }
    }
}

async fn read(folder: &Path) -> Result<Held, CredentialsError> {
    let path = folder.join("token");
    let token = bytes(&path).await?;
    let token = String::from_utf8(token).map_err(|_| CredentialsError::NotText { path })?;
    let ca = bytes(&folder.join("ca.crt")).await.map(Into::into).map_err(Arc::new);
    Ok(Held { token: token.into(), ca })
}

async fn bytes(path: &Path) -> Result<Vec<u8>, CredentialsError> {
    let named = |source| CredentialsError::Read { path: path.to_owned(), source };
    tokio::fs::read(path).await.map_err(named)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "writes a token to a temporary folder")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_token_that_comes_late_or_changes_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(folder.path().to_owned()).await;
        let missing = credentials.held().err().expect("no token yet").to_string();
        assert_eq!(missing, format!("failed to read {}/token", folder.path().display()));

        let steps = async {
            for token in ["first", "second"] {
                std::fs::write(folder.path().join("token"), token).unwrap();
                tokio::time::sleep(2 * POLL).await;
                let held = credentials.held().unwrap();
                assert_eq!(&*held.token, token);
                assert!(held.ca.is_err(), "there is no ca.crt");
            }
        };
        tokio::select! {
            () = credentials.keep_up() => {}
            () = steps => {}
        }
    }
}
