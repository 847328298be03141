//! Sources of the configs that the server serves.

mod bootstrap;
mod cluster;
mod credentials;
mod files;
mod join;
mod selected_configs;

use std::{collections::BTreeMap, future, sync::Arc};

use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};

pub use bootstrap::{
    BootstrapSettings, BootstrapSource, RegistryCaError, RegistryCaFile, tls_policy,
};
pub use cluster::ClusterSource;
pub use credentials::CredentialsError;
pub use files::FileError;
pub use join::JoinSettings;

use crate::{
    api_url::UnknownApiUrl,
    document::{FirstBoot, Inputs},
};

/// Name of the one ControllerConfig.
pub(crate) const CONTROLLER_CONFIG: &str = "machine-config-controller";

/// A source of the config of each pool.
pub trait Source: Send + Sync + 'static {
    /// Waits until the source has all its objects.
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// Returns the watches that are stale, one line for each.
    fn stale_watches(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the current inputs of the document for `pool`.
    fn inputs(&self, pool: &str) -> impl Future<Output = Result<Inputs, LookupError>> + Send;
}

/// A failure to find the config of a pool. All of these may pass, so the server responds with 5xx.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The pool does not exist, or not yet.
    #[error("pool {0:?} does not exist")]
    Pool(String),
    /// The pool is not served before the cluster runs. Compat: the text is the reference's
    /// (`pkg/server/bootstrap_server.go`).
    #[error("refusing to serve bootstrap configuration to pool {0:?}")]
    NotInBootstrap(String),
    /// The pool has no config yet.
    #[error("pool {0:?} has no config yet")]
    NoConfig(String),
    /// The pool's config does not exist, or not yet.
    #[error("config {config:?} of pool {pool:?} does not exist")]
    Config {
        /// The pool.
        pool: String,
        /// The config.
        config: String,
    },
    /// The operator has not created the ControllerConfig yet.
    #[error("ControllerConfig {CONTROLLER_CONFIG:?} does not exist")]
    ControllerConfig,
    /// No URL of the API server is known.
    #[error("failed to build the kubelet's kubeconfig")]
    ApiUrl(#[source] UnknownApiUrl),
    /// The kubeconfig cannot be built.
    #[error("failed to build the kubelet's kubeconfig")]
    Credentials(#[source] Arc<CredentialsError>),
    /// A file of a bootstrap server cannot be used.
    #[error(transparent)]
    File(FileError),
}

impl LookupError {
    /// Returns true if nothing is wrong with an object or a file: it is not there yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        match self {
            Self::File(error) => error.is_missing(),
            Self::Pool(_)
            | Self::NotInBootstrap(_)
            | Self::NoConfig(_)
            | Self::Config { .. }
            | Self::ControllerConfig
            | Self::ApiUrl(_)
            | Self::Credentials(_) => true,
        }
    }

    /// Returns true if the pool is not one that the server has: its name is only the client's.
    #[must_use]
    pub fn is_unknown_pool(&self) -> bool {
        matches!(self, Self::Pool(_) | Self::NotInBootstrap(_))
    }
}

/// Returns the name of the config for a new machine of `pool`: the newest one as soon as one
/// machine runs it.
///
/// So a new machine can join if the previous config no longer works (an expired pull secret), and
/// need not update right after it joined.
#[must_use]
pub(crate) fn select_config(pool: &MachineConfigPool) -> &str {
    match &pool.status {
        Some(status) if status.updated_machine_count > 0 => &pool.spec.configuration.rendered.name,
        Some(status) => &status.configuration.rendered.name,
        None => "",
    }
}

/// Configs that never change, for tests and benchmarks.
#[derive(Clone, Debug, Default)]
pub struct FixedSource {
    pools: BTreeMap<String, Inputs>,
}

impl FixedSource {
    /// Adds a pool that serves `config` alone.
    #[must_use]
    pub fn with(mut self, pool: &str, config: MachineConfig) -> Self {
        let inputs = Inputs { config: Arc::new(config), first_boot: None };
        self.pools.insert(pool.to_owned(), inputs);
        self
    }

    /// Adds a pool that serves `config` with the files for a first boot in a cluster.
    #[must_use]
    pub fn joining(
        mut self,
        pool: &str,
        config: MachineConfig,
        controller: ControllerConfig,
    ) -> Self {
        let first_boot = FirstBoot::new(Arc::new(controller), None);
        let inputs = Inputs { config: Arc::new(config), first_boot: Some(first_boot) };
        self.pools.insert(pool.to_owned(), inputs);
        self
    }
}

impl Source for FixedSource {
    fn ready(&self) -> impl Future<Output = ()> + Send {
        future::ready(())
    }

    fn inputs(&self, pool: &str) -> impl Future<Output = Result<Inputs, LookupError>> + Send {
        let found = self.pools.get(pool).cloned();
        future::ready(found.ok_or_else(|| LookupError::Pool(pool.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use mco_api::MachineConfigPoolStatus;

    use super::*;

    // covers: S29
    #[test]
    fn a_new_machine_gets_the_new_config_once_one_machine_runs_it() {
        let rows = [
            ("none runs it", Some(0), "old"),
            ("one runs it", Some(1), "new"),
            ("all run it", Some(30), "new"),
            ("no status yet", None, ""),
        ];
        for (case, updated, expected) in rows {
            let mut pool = MachineConfigPool::default();
            pool.spec.configuration.rendered.name = "new".to_owned();
            pool.spec.paused = true;
            pool.status = updated.map(|updated_machine_count| {
                let mut status =
                    MachineConfigPoolStatus { updated_machine_count, ..Default::default() };
                status.configuration.rendered.name = "old".to_owned();
                status
            });
            assert_eq!(select_config(&pool), expected, "{case}");
        }
    }
}
