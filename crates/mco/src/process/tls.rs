//! Flags for TLS versions and cipher suites.

use mco_cluster::{
    report,
    tls::{Policy, PolicyError},
};
use tracing::error;

/// Flags for the TLS of a process's HTTPS listeners.
#[derive(Debug, clap::Args)]
pub(crate) struct TlsArgs {
    /// Minimum TLS version with the names of Kubernetes; `VersionTLS12`, the default, is the lowest
    #[arg(long, global = true, value_name = "VERSION")]
    tls_min_version: Option<String>,
    /// Cipher suites for TLS 1.2 by IANA name, comma-separated; all secure ones if omitted
    #[arg(long, global = true, value_delimiter = ',', value_name = "SUITES")]
    tls_cipher_suites: Vec<String>,
}

impl TlsArgs {
    /// Returns true if one of the flags is given.
    pub(crate) fn is_given(&self) -> bool {
        self.tls_min_version.is_some() || !self.tls_cipher_suites.is_empty()
    }

    /// Returns the versions and suites of the flags; the defaults if the flags are invalid.
    pub(crate) fn policy(&self) -> Policy {
        let min_version = self.tls_min_version.as_deref().unwrap_or_default();
        Policy::parse(min_version, &self.tls_cipher_suites).unwrap_or_else(|error: PolicyError| {
            // Compat: invalid TLS settings do not stop a process (pkg/controller/common/helpers.go).
            let error = report::chain(&error);
            error!(error, "Error using provided tls arguments; using the defaults");
            Policy::default()
        })
    }
}
