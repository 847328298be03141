//! What the daemon keeps on the machine's disk about itself.
//!
//! Compat: paths and formats are the reference's (`pkg/daemon/constants`), save for permissions:
//! configs hold secrets, so only the superuser reads them.

use std::collections::BTreeMap;

use mco_api::MachineConfig;
use mco_host::{Root, RootError};

/// The config that the disk has.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// The image-mode image that the disk has; empty without one.
pub const CURRENT_IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// What a node says of itself when it first joins; there only until it did.
pub const INITIAL_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
const INITIAL_ANNOTATIONS_DONE: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// A config that first boot has yet to complete.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
const ENCAPSULATED_DONE: &str = "/etc/ignition-machine-config-encapsulated.json.bak";
/// The whole config that a machine was installed with.
pub const INSTALLED: &str = "/etc/mcs-machine-config-content.json";
/// Where everything is that the daemon keeps about itself.
pub const RECORDS: &str = "/etc/machine-config-daemon";
const IGNITION_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";

/// Why the daemon's own files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file does not hold what it should.
    #[error("cannot understand {path}")]
    Parse {
        /// The file.
        path: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// The config that the disk has, if any was recorded.
pub fn current_config(root: &Root) -> Result<Option<MachineConfig>, DiskError> {
    parsed(root, CURRENT_CONFIG)
}

/// Records the config that the disk has.
pub fn record_config(root: &Root, config: &MachineConfig) -> Result<(), DiskError> {
    // The config last: it is what counts as the record.
    root.write(CURRENT_IMAGE, b"", 0o600)?;
    write(root, CURRENT_CONFIG, config)
}

/// What the node says of itself when it first joins.
pub fn initial_annotations(root: &Root) -> Result<Option<BTreeMap<String, String>>, DiskError> {
    parsed(root, INITIAL_ANNOTATIONS)
}

/// Notes that the node has joined.
pub fn has_joined(root: &Root) -> Result<(), DiskError> {
    if root.stat(INITIAL_ANNOTATIONS)?.is_some() {
        root.rename(INITIAL_ANNOTATIONS, INITIAL_ANNOTATIONS_DONE)?;
    }
    Ok(())
}

/// The config that the machine was installed with, if it is still on record.
pub fn installed_config(root: &Root) -> Result<Option<MachineConfig>, DiskError> {
    parsed(root, INSTALLED)
}

/// Drops the record of the config that the disk has.
pub(crate) fn forget_config(root: &Root) -> Result<(), DiskError> {
    root.remove(CURRENT_CONFIG)?;
    Ok(())
}

/// Puts away what first boot left behind; says whether it had not finished.
pub fn tidy_first_boot(root: &Root) -> Result<bool, DiskError> {
    root.remove(IGNITION_PRESET)?;
    let is_unfinished = root.stat(ENCAPSULATED)?.is_some();
    if is_unfinished {
        root.rename(ENCAPSULATED, ENCAPSULATED_DONE)?;
    }
    Ok(is_unfinished)
}

/// Writes one of the daemon's files, for the superuser only.
pub(crate) fn write<T: serde::Serialize>(
    root: &Root,
    path: &'static str,
    value: &T,
) -> Result<(), DiskError> {
    let bytes = serde_json::to_vec(value).map_err(|source| DiskError::Parse { path, source })?;
    Ok(root.write(path, &bytes, 0o600)?)
}

/// Reads one of the daemon's files; none if it is not there or empty.
pub(crate) fn parsed<T: serde::de::DeserializeOwned>(
    root: &Root,
    path: &'static str,
) -> Result<Option<T>, DiskError> {
    let Some(bytes) = root.read(path)? else { return Ok(None) };
    // Compat: an empty file is none (pkg/daemon/daemon.go).
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|source| DiskError::Parse { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C22, C23
    #[test]
    fn what_first_boot_left_is_put_away() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert!(!tidy_first_boot(&root).unwrap());
        root.write(ENCAPSULATED, b"{}", 0o600).unwrap();
        root.write(IGNITION_PRESET, b"enable a.service", 0o644).unwrap();
        assert!(tidy_first_boot(&root).unwrap(), "it had not finished");
        assert!(root.exists(ENCAPSULATED_DONE).unwrap());
        assert!(!root.exists(ENCAPSULATED).unwrap() && !root.exists(IGNITION_PRESET).unwrap());
    }
}
