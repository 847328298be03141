//! The certificate of the config server, which the controller issues and renews in the cluster, as
//! files in the state directory.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::Client;
use mco_api::label;
use mco_cluster::{Api, CallError, Shutdown, report};
use mco_host::Root;
use mco_server::Certificate;
use tracing::warn;

use super::state_dir::StateDir;

const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
/// Certificates of the authorities that new machines trust.
const AUTHORITIES: &str = "ca.crt";

/// Pause between two lookups until the controller has issued the first certificate.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);
/// Pause between two lookups of a renewed certificate, which is valid long before it is needed.
const INTERVAL: Duration = Duration::from_mins(1);

/// The objects of the certificate.
pub(crate) struct ServerCertificate {
    secrets: Api<Secret>,
    bundles: Api<ConfigMap>,
    root: Root,
}

impl ServerCertificate {
    /// Prepares the directory of the files.
    pub(crate) fn new(client: &Client, state: &StateDir) -> anyhow::Result<Self> {
        Ok(Self {
            secrets: Api::namespaced(client.clone(), label::NAMESPACE),
            bundles: Api::namespaced(client.clone(), label::NAMESPACE),
            root: Root::create(&state.server())?,
        })
    }

    /// Waits until the controller has issued the certificate, and writes the files.
    pub(crate) async fn wait(&self, state: &StateDir) -> anyhow::Result<Certificate> {
        while !self.write().await? {
            tokio::time::sleep(FIRST_INTERVAL).await;
        }
        let dir = state.server();
        Ok(Certificate::files(dir.join(CHAIN), dir.join(KEY)))
    }

    /// Writes renewed certificates until shutdown.
    pub(crate) async fn follow(self, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.requested() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            if let Err(error) = self.write().await {
                let error = report::chain(error.as_ref());
                warn!(error, "Failed to update the files of the config server's certificate");
            }
        }
    }

    /// Writes the files; returns false if the certificate is not issued yet.
    async fn write(&self) -> anyhow::Result<bool> {
        let secret = optional(self.secrets.get(label::SERVER_TLS).await)?;
        let bundle = optional(self.bundles.get(label::SERVER_CA).await)?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let authorities = bundle.and_then(|bundle| bundle.data?.get("ca-bundle.crt").cloned());
        let (Some(ByteString(chain)), Some(ByteString(key)), Some(authorities)) =
            (data.get(CHAIN), data.get(KEY), authorities)
        else {
            return Ok(false);
        };
        // The key before its certificate: the server ignores a pair that does not match.
        for (name, bytes, mode) in [
            (KEY, key.as_slice(), 0o600),
            (CHAIN, chain, 0o644),
            (AUTHORITIES, authorities.as_bytes(), 0o644),
        ] {
            let path = format!("/{name}");
            if self.root.read(&path)?.as_deref() != Some(bytes) {
                self.root.write(&path, bytes, mode)?;
            }
        }
        Ok(true)
    }
}

fn optional<T>(found: Result<T, impl Into<CallError>>) -> Result<Option<T>, CallError> {
    match found.map_err(Into::into) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the certificates of the authorities, which simulated machines trust.
pub(crate) fn authorities(state: &StateDir) -> anyhow::Result<Vec<u8>> {
    let root = Root::create(&state.server())?;
    let found = root.read(&format!("/{AUTHORITIES}"))?;
    found.with_context(|| format!("{}/{AUTHORITIES} is missing", state.server().display()))
}
