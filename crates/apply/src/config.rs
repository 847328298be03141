//! A MachineConfig that is parsed once.

use std::sync::Arc;

use mco_api::MachineConfig;
use mco_core::machine::Machine;
use tracing::debug;

use crate::execute::ExecuteError;

/// A MachineConfig and its parsed form; clones share both.
#[derive(Clone, Debug)]
pub struct ParsedConfig {
    /// The config as it is recorded.
    pub object: Arc<MachineConfig>,
    /// The parsed config.
    pub machine: Arc<Machine>,
}

/// Parses a config. The only place in which the daemon does so, and logged: an update parses each of
/// its configs once.
pub(crate) fn parse(config: &MachineConfig) -> Result<Machine, ExecuteError> {
    let name = config.metadata.name.clone().unwrap_or_default();
    debug!(config = name, "Parsed config");
    Machine::read(config).map_err(|source| ExecuteError::Config { config: name, source })
}

impl ParsedConfig {
    /// Parses a config.
    pub fn read(object: MachineConfig) -> Result<Self, ExecuteError> {
        let machine = parse(&object)?;
        Ok(Self { object: Arc::new(object), machine: Arc::new(machine) })
    }

    /// Returns true if the config has this name.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.object.metadata.name.as_deref() == Some(name)
    }
}
