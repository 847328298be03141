//! A MachineConfig that is parsed once.

use std::sync::Arc;

use mco_api::MachineConfig;
use mco_core::machine::Machine;

use crate::execute::ExecuteError;

/// A MachineConfig and its parsed form; clones share both.
#[derive(Clone, Debug)]
pub struct ParsedConfig {
    /// The config as it is recorded.
    pub object: Arc<MachineConfig>,
    /// The parsed config.
    pub machine: Arc<Machine>,
}

impl ParsedConfig {
    /// Parses a config.
    pub fn read(object: MachineConfig) -> Result<Self, ExecuteError> {
        let machine = Machine::read(&object).map_err(|source| {
            let config = object.metadata.name.clone().unwrap_or_default();
            ExecuteError::Config { config, source }
        })?;
        Ok(Self { object: Arc::new(object), machine: Arc::new(machine) })
    }

    /// Returns true if the config has this name.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.object.metadata.name.as_deref() == Some(name)
    }
}
