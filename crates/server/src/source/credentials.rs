//! The token and CA certificate with which a new kubelet connects to the API server.
//!
//! They are files of a mounted Secret, which change when the token is renewed; so they are read
//! periodically, and not used after a read that failed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use mco_core::goyaml::UnreadableText;

/// A failure to build the kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause of the failure.
        source: std::io::Error,
    },
    /// The token is not UTF-8.
    #[error("the token in {} is not valid UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// The token or the URL cannot be written as YAML.
    #[error("failed to write the kubeconfig")]
    Write(#[source] UnreadableText),
}

/// Contents of the files.
pub(super) struct CredentialData {
    /// The token.
    pub(super) token: String,
    /// The CA certificates, or the error; the ConfigMap's bundle may replace them.
    pub(super) ca: Result<Vec<u8>, Arc<CredentialsError>>,
}

impl CredentialData {
    fn is_same(&self, other: &Self) -> bool {
        let ca = match (&self.ca, &other.ca) {
            (Ok(one), Ok(two)) => one == two,
            (Err(one), Err(two)) => one.to_string() == two.to_string(),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
        };
        ca && self.token == other.token
    }
}

type Outcome = Result<Arc<CredentialData>, Arc<CredentialsError>>;

fn is_same(one: &Outcome, two: &Outcome) -> bool {
    match (one, two) {
        (Ok(one), Ok(two)) => one.is_same(two),
        (Err(one), Err(two)) => one.to_string() == two.to_string(),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
    }
}

/// The files, and their contents at the last read.
pub(super) struct Credentials {
    folder: PathBuf,
    current: RwLock<Outcome>,
}

/// Interval between two reads of the files.
const POLL: Duration = Duration::from_secs(10);

impl Credentials {
    /// Reads the files for the first time.
    pub(super) async fn open(folder: PathBuf) -> Self {
        let current = read(&folder).await;
        Self { folder, current: RwLock::new(current) }
    }

    /// Returns the contents of the files at the last read.
    pub(super) fn current(&self) -> Outcome {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files periodically and calls `on_change` when they have changed; never returns.
    pub(super) async fn run_refresh(&self, on_change: impl Fn()) {
        loop {
            tokio::time::sleep(POLL).await;
            let new = read(&self.folder).await;
            if is_same(&self.current(), &new) {
                continue;
            }
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
            on_change();
        }
    }
}

async fn read(folder: &Path) -> Outcome {
    read_files(folder).await.map(Arc::new).map_err(Arc::new)
}

async fn read_files(folder: &Path) -> Result<CredentialData, CredentialsError> {
    let path = folder.join("token");
    let token = bytes(&path).await?;
    let token = String::from_utf8(token).map_err(|_| CredentialsError::NotText { path })?;
    let ca = bytes(&folder.join("ca.crt")).await.map_err(Arc::new);
    Ok(CredentialData { token, ca })
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
    async fn a_token_that_appears_late_or_changes_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(folder.path().to_owned()).await;
        let missing = credentials.current().err().expect("no token yet").to_string();
        assert_eq!(missing, format!("failed to read {}/token", folder.path().display()));

        let changes = std::sync::atomic::AtomicU32::new(0);
        let count = || changes.load(std::sync::atomic::Ordering::Relaxed);
        let steps = async {
            for token in ["first", "second"] {
                std::fs::write(folder.path().join("token"), token).unwrap();
                tokio::time::sleep(2 * POLL).await;
                let current = credentials.current().unwrap();
                assert_eq!(&*current.token, token);
                assert!(current.ca.is_err(), "there is no ca.crt");
            }
            let changes = count();
            assert!(changes >= 2, "{changes}");
            tokio::time::sleep(5 * POLL).await;
            assert_eq!(count(), changes, "only changes are announced");
        };
        let on_change = || {
            changes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        tokio::select! {
            () = credentials.run_refresh(on_change) => {}
            () = steps => {}
        }
    }
}
