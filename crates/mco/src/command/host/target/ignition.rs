//! An Ignition config in place of manifests.
//!
//! Compat: an input of the reference's `--once-from` beside a MachineConfig. The reference ignores
//! users and the operating system of such a config; here users are applied.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use mco_api::{MachineConfig, MachineConfigSpec, RawConfig};
use mco_host::{input, snapshot};

/// Maximum size of an Ignition config.
const MAX_CONFIG_SIZE: u64 = 64 << 20;

/// Compat: the reference's text for an input that is no config.
pub(super) const UNDECIPHERED: &str = "unable to decipher onceFrom config type";

/// Returns the config if the only path is a file with an Ignition config.
pub(super) fn only(paths: &[PathBuf]) -> anyhow::Result<Option<MachineConfig>> {
    let [path] = paths else { return Ok(None) };
    let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    if !matches!(kind, "ign" | "json") || input::is_directory(path)? {
        return Ok(None);
    }
    let found = read(path)?;
    if found.is_none() && kind == "ign" {
        anyhow::bail!("{UNDECIPHERED}: {} is not an Ignition config", path.display());
    }
    Ok(found)
}

/// Returns the config if the file contains an Ignition config, whatever its name.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<MachineConfig>> {
    let bytes = input::file(path, MAX_CONFIG_SIZE)?;
    let is_ignition = serde_json::from_slice::<serde_json::Value>(&bytes)
        .is_ok_and(|value| value.get("ignition").is_some() && value.get("kind").is_none());
    if !is_ignition {
        return Ok(None);
    }
    mco_ignition::read(&bytes).with_context(|| format!("{UNDECIPHERED}: {}", path.display()))?;
    let raw = RawConfig::from_json(String::from_utf8(bytes.clone())?)?;
    let hash = snapshot::hash(&bytes);
    let name = format!("ignition-{}", hash.get(..16).unwrap_or(&hash));
    let spec = MachineConfigSpec { config: Some(raw), ..MachineConfigSpec::default() };
    Ok(Some(MachineConfig::new(&name, spec)))
}
