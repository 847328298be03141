//! The one config that a command is about: a MachineConfig, or what a pool renders to.

use std::path::{Path, PathBuf};

use crate::{
    fault::Refused,
    load::{
        self, Sources,
        manifests::{Manifest, Manifests},
    },
    machine::Machine,
};

/// Reads the config in `path`: the only MachineConfig of a file, or what a pool renders to.
pub(crate) fn read(
    path: &Path,
    recursive: bool,
    pool: Option<&str>,
    verbose: bool,
) -> anyhow::Result<Machine> {
    let sources = Sources { paths: vec![path.to_owned()], recursive };
    let manifests = Manifests::new(sources.load()?);
    if let ([only], true) = (manifests.configs.as_slice(), no_pool_given(&manifests)) {
        if manifests.faults.iter().any(crate::fault::Fault::is_error) {
            return Err(anyhow::Error::new(Refused(manifests.faults)));
        }
        return machine(only).map_err(|error| manifests.blame(&only.object.name, error));
    }
    rendered(manifests, pool, verbose)
}

/// Renders a pool from the manifests in several places.
pub(crate) fn render(
    sources: &[PathBuf],
    recursive: bool,
    pool: Option<&str>,
    verbose: bool,
) -> anyhow::Result<Machine> {
    let sources = Sources { paths: sources.to_vec(), recursive };
    rendered(Manifests::new(sources.load()?), pool, verbose)
}

fn rendered(manifests: Manifests, pool: Option<&str>, verbose: bool) -> anyhow::Result<Machine> {
    let manifests = manifests.or_refuse()?;
    manifests.tell(verbose);
    let rendered = manifests.render(manifests.pool(pool)?)?;
    Machine::new(rendered.name.to_string(), rendered.spec)
}

fn machine(config: &Manifest<mco_api::MachineConfig>) -> anyhow::Result<Machine> {
    Machine::new(config.object.name.clone(), config.value.spec.clone())
}

fn no_pool_given(manifests: &Manifests) -> bool {
    manifests.pools.iter().all(|pool| pool.object.is_none())
}

/// The bytes of an Ignition config: a file of its own, or the config of a MachineConfig.
pub(crate) fn ignition(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = load::bytes(path)?;
    let is_ignition = serde_json::from_slice::<serde_json::Value>(&bytes)
        .is_ok_and(|value| value.get("kind").is_none() && value.get("ignition").is_some());
    if is_ignition {
        return Ok(bytes);
    }
    let manifests = Manifests::new(load::text(path, bytes)).or_refuse()?;
    match manifests.configs.as_slice() {
        [only] => match &only.value.spec.config {
            Some(raw) => Ok(raw.get().as_bytes().to_vec()),
            None => anyhow::bail!("{} has no Ignition config", only.object.label()),
        },
        _ => anyhow::bail!("{} holds several MachineConfigs, not one", path.display()),
    }
}
