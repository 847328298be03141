//! Reads the config of an offline command: a MachineConfig, or the rendered config of a pool.

use mco_core::lint::{Fault, Manifest, Manifests};
use std::path::{Path, PathBuf};

use crate::{
    decoded::DecodedConfig,
    error::FaultsError,
    load::{self, Sources, manifests::ManifestsExt as _},
};

/// Reads the config in `path`: the only MachineConfig of a file, or the rendered config of a pool.
pub(crate) fn read(
    path: &Path,
    recursive: bool,
    pool: Option<&str>,
    verbose: bool,
) -> anyhow::Result<DecodedConfig> {
    let sources = Sources { paths: vec![path.to_owned()], recursive };
    let manifests = sources.load()?.into_manifests();
    if let ([only], true) = (manifests.configs.as_slice(), no_pool_given(&manifests)) {
        if manifests.faults.iter().any(Fault::is_error) {
            return Err(anyhow::Error::new(FaultsError(manifests.faults)));
        }
        return decode(only).map_err(|error| manifests.faults_of(&only.object.name, error));
    }
    rendered(manifests, pool, verbose)
}

/// Renders a pool from the manifests in several paths.
pub(crate) fn render(
    sources: &[PathBuf],
    recursive: bool,
    pool: Option<&str>,
    verbose: bool,
) -> anyhow::Result<DecodedConfig> {
    let sources = Sources { paths: sources.to_vec(), recursive };
    rendered(sources.load()?.into_manifests(), pool, verbose)
}

fn rendered(
    manifests: Manifests,
    pool: Option<&str>,
    verbose: bool,
) -> anyhow::Result<DecodedConfig> {
    let manifests = manifests.or_refuse()?;
    manifests.print_notes(verbose);
    let rendered = manifests.render(manifests.pool(pool)?)?;
    DecodedConfig::new(rendered.name.to_string(), rendered.spec)
}

fn decode(config: &Manifest<mco_api::MachineConfig>) -> anyhow::Result<DecodedConfig> {
    DecodedConfig::new(config.object.name.clone(), config.value.spec.clone())
}

fn no_pool_given(manifests: &Manifests) -> bool {
    manifests.pools.iter().all(|pool| pool.object.is_none())
}

/// Returns the bytes of an Ignition config: a file of its own, or the config of a MachineConfig.
pub(crate) fn ignition(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = load::bytes(path)?;
    let is_ignition = serde_json::from_slice::<serde_json::Value>(&bytes)
        .is_ok_and(|value| value.get("kind").is_none() && value.get("ignition").is_some());
    if is_ignition {
        return Ok(bytes);
    }
    let manifests = load::text(path, bytes).into_manifests().or_refuse()?;
    match manifests.configs.as_slice() {
        [only] => match &only.value.spec.config {
            Some(raw) => Ok(raw.get().as_bytes().to_vec()),
            None => anyhow::bail!("{} has no Ignition config", only.object.label()),
        },
        _ => anyhow::bail!("{} contains more than one MachineConfig", path.display()),
    }
}
