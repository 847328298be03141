//! Validation of a single MachineConfig.

use mco_api::MachineConfig;
use mco_ignition::Document;

use super::{InvalidConfig, RenderError, name_of};

/// Supported extensions.
pub const EXTENSIONS: [&str; 7] = [
    "two-node-ha",
    "ipsec",
    "usbguard",
    "kerberos",
    "kernel-devel",
    "sandboxed-containers",
    "sysstat",
];

/// Validates a single MachineConfig.
pub fn validate(config: &MachineConfig) -> Result<(), InvalidConfig> {
    document(config).map(drop)
}

/// Validates a MachineConfig and returns its parsed Ignition config.
pub(super) fn read(config: &MachineConfig) -> Result<Option<Document>, RenderError> {
    document(config)
        .map_err(|source| RenderError::Invalid { config: name_of(config).to_owned(), source })
}

fn document(config: &MachineConfig) -> Result<Option<Document>, InvalidConfig> {
    let spec = &config.spec;
    if !matches!(spec.kernel_type.as_str(), "" | "default" | "realtime" | "64k-pages") {
        return Err(InvalidConfig::KernelType(spec.kernel_type.clone()));
    }
    // Compat: without an Ignition config the extensions are not checked either
    // (pkg/controller/common/helpers.go). `mco check` checks them.
    let Some(raw) = &spec.config else { return Ok(None) };
    let document = mco_ignition::read(raw.get().as_bytes())?;
    document.check()?;
    let unknown: Vec<String> = spec
        .extensions
        .iter()
        .filter(|extension| !EXTENSIONS.contains(&extension.as_str()))
        .cloned()
        .collect();
    if unknown.is_empty() { Ok(Some(document)) } else { Err(InvalidConfig::Extensions(unknown)) }
}
