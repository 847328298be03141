//! An Ignition config in place of manifests.
//!
//! Compat: what the reference's `--once-from` takes besides a MachineConfig. Users and the operating system
//! are none of it there; here the users are.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use mco_api::{MachineConfig, MachineConfigSpec, RawConfig};
use mco_host::{input, snapshot};

/// No config comes near it.
const LARGEST: u64 = 64 << 20;

/// The reference's words for what is no config.
pub(super) const UNDECIPHERED: &str = "unable to decipher onceFrom config type";

/// The config, if the only path is a file with one.
pub(super) fn only(paths: &[PathBuf]) -> anyhow::Result<Option<MachineConfig>> {
    let [path] = paths else { return Ok(None) };
    let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
    if !matches!(kind, "ign" | "json") || input::is_directory(path)? {
        return Ok(None);
    }
    let found = read(path)?;
    if found.is_none() && kind == "ign" {
        anyhow::bail!("{UNDECIPHERED}: {} is no Ignition config", path.display());
    }
    Ok(found)
}

/// The config, if this is a file with one, whatever its name.
pub(super) fn read(path: &Path) -> anyhow::Result<Option<MachineConfig>> {
    let bytes = input::file(path, LARGEST)?;
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
