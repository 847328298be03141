//! Small objects for tests.

use mco_api::{MachineConfig, MachineConfigPool, MachineConfigSpec, RawConfig, label};

/// A config that says nothing.
pub(crate) fn machine_config(name: &str, role: &str) -> MachineConfig {
    let mut config = MachineConfig::new(name, MachineConfigSpec::default());
    config.metadata.labels = Some([(label::ROLE.to_owned(), role.to_owned())].into());
    config
}

/// A config with this Ignition config.
pub(crate) fn ignition(name: &str, role: &str, json: &str) -> MachineConfig {
    let mut config = machine_config(name, role);
    config.spec.config = Some(RawConfig::from_json(json.to_owned()).expect("JSON"));
    config
}

/// A pool with this selector, in JSON.
pub(crate) fn pool(name: &str, selector: &str) -> MachineConfigPool {
    let mut pool = MachineConfigPool::new(name, mco_api::MachineConfigPoolSpec::default());
    pool.spec.machine_config_selector = serde_json::from_str(selector).expect("a selector");
    pool
}
