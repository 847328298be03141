//! Where the configs come from.

mod cluster;
mod credentials;

use std::{collections::BTreeMap, future, sync::Arc};

use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool};

pub use cluster::{Cluster, Joining};
pub use credentials::CredentialsError;

use crate::document::{FirstBoot, Inputs};

/// Name of the one ControllerConfig.
pub(crate) const CONTROLLER_CONFIG: &str = "machine-config-controller";

/// Something that knows the config of each pool.
pub trait Source: Send + Sync + 'static {
    /// Waits until it knows all that there is.
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// What the document for `pool` is made of now.
    fn inputs(&self, pool: &str) -> Result<Inputs, LookupError>;
}

/// Why a pool has nothing to serve. All of these may pass, so the machine is told to ask again.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// There is no such pool, or not yet.
    #[error("could not fetch pool {0:?}")]
    Pool(String),
    /// The pool's config is not there, or not yet.
    #[error("could not fetch config {config:?} of pool {pool:?}")]
    Config {
        /// The pool.
        pool: String,
        /// The config.
        config: String,
    },
    /// The operator has not described the cluster yet.
    #[error("could not get controllerconfig {CONTROLLER_CONFIG}")]
    ControllerConfig,
    /// There is no kubeconfig to hand out.
    #[error("cannot make the kubelet's kubeconfig")]
    Credentials(#[source] Arc<CredentialsError>),
}

/// The config that a new machine of `pool` gets: the newest as soon as a machine has proved it.
///
/// That way a config whose predecessor broke in the meantime (an expired pull secret) is no dead
/// end, and a new machine need not update right after it was made.
#[must_use]
pub fn choose(pool: &MachineConfigPool) -> &str {
    match &pool.status {
        Some(status) if status.updated_machine_count > 0 => &pool.spec.configuration.rendered.name,
        Some(status) => &status.configuration.rendered.name,
        None => "",
    }
}

/// Configs that never change, for tests and measurements.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    pools: BTreeMap<String, Inputs>,
}

impl Fixed {
    /// Serves `config`, and nothing else, to machines of `pool`.
    #[must_use]
    pub fn with(mut self, pool: &str, config: MachineConfig) -> Self {
        let inputs = Inputs { config: Arc::new(config), first_boot: None };
        self.pools.insert(pool.to_owned(), inputs);
        self
    }

    /// Serves `config` to machines of `pool`, with what a first boot in a cluster needs.
    #[must_use]
    pub fn joining(
        mut self,
        pool: &str,
        config: MachineConfig,
        controller: ControllerConfig,
    ) -> Self {
        let first_boot = FirstBoot { controller: Arc::new(controller), kubeconfig: None };
        let inputs = Inputs { config: Arc::new(config), first_boot: Some(first_boot) };
        self.pools.insert(pool.to_owned(), inputs);
        self
    }
}

impl Source for Fixed {
    fn ready(&self) -> impl Future<Output = ()> + Send {
        future::ready(())
    }

    fn inputs(&self, pool: &str) -> Result<Inputs, LookupError> {
        self.pools.get(pool).cloned().ok_or_else(|| LookupError::Pool(pool.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use mco_api::MachineConfigPoolStatus;

    use super::*;

    // covers: S29
    #[test]
    fn a_new_machine_gets_the_new_config_once_one_machine_has_it() {
        let rows = [
            ("nobody has it", Some(0), "old"),
            ("one has it", Some(1), "new"),
            ("all have it", Some(30), "new"),
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
            assert_eq!(choose(&pool), expected, "{case}");
        }
    }
}
