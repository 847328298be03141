//! The token that the config server gives to new machines, as files in the state directory.
//!
//! It is a token of the service account that the operator creates for new machines, with the rights
//! to request a certificate. Tokens end with the API server, so each start issues a new one.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use kube::Client;
use mco_api::{join_token::BOOTSTRAPPER, label};
use mco_cluster::{CallError, Shutdown, report};
use mco_host::Root;
use serde_json::json;
use tracing::warn;

use super::state_dir::StateDir;

/// Validity of a token, in seconds.
const VALIDITY: u64 = 24 * 60 * 60;

/// Time after which a token is replaced.
const RENEWAL: Duration = Duration::from_secs(VALIDITY / 2);

/// Pause after a failed attempt; the operator creates the service account at the first start.
const RETRY: Duration = Duration::from_millis(200);

/// Maximum size of the certificate of the API server's authority.
const MAX_CERTIFICATE: u64 = 1 << 20;

/// The files with the token.
pub(crate) struct BootstrapToken {
    client: Client,
    root: Root,
    dir: PathBuf,
}

impl BootstrapToken {
    /// Prepares the directory, with the certificate that verifies the API server.
    pub(crate) fn new(client: &Client, state: &StateDir) -> anyhow::Result<Self> {
        let dir = state.server().join("bootstrap");
        let root = Root::create(&dir)?;
        let ca = mco_host::input::file(&state.dir().join("ca.crt"), MAX_CERTIFICATE)?;
        root.write("/ca.crt", &ca, 0o644)?;
        Ok(Self { client: client.clone(), root, dir })
    }

    /// Waits until the service account exists, writes its token, and returns the directory.
    pub(crate) async fn wait(&self) -> anyhow::Result<PathBuf> {
        loop {
            match self.issue().await {
                Ok(token) => {
                    self.root.write("/token", token.as_bytes(), 0o600)?;
                    return Ok(self.dir.clone());
                }
                Err(error) if error.is_not_found() => tokio::time::sleep(RETRY).await,
                Err(error) => return Err(error).context("failed to issue a bootstrap token"),
            }
        }
    }

    /// Writes new tokens until shutdown.
    pub(crate) async fn follow(self, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.requested() => return,
                () = tokio::time::sleep(RENEWAL) => {}
            }
            tokio::select! {
                () = shutdown.requested() => return,
                renewed = self.wait() => if let Err(error) = renewed {
                    let error = report::chain(error.as_ref());
                    warn!(error, "Failed to renew the bootstrap token");
                }
            }
        }
    }

    async fn issue(&self) -> Result<String, CallError> {
        let namespace = label::NAMESPACE;
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{BOOTSTRAPPER}/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": VALIDITY}});
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes());
        let request = request.expect("the path above is a valid URL");
        let issued = self.client.request::<TokenRequest>(request).await?;
        Ok(issued.status.and_then(|status| status.token).unwrap_or_default())
    }
}
