//! The daemon's own files on the machine's disk.
//!
//! Compat: paths and formats are the reference's (`pkg/daemon/constants`), except the permissions:
//! configs hold secrets, so only root reads them.

use std::collections::BTreeMap;

use mco_api::MachineConfig;
use mco_host::{Root, RootError};
use tracing::warn;

use crate::report::chain;

/// Config of the machine.
pub const CURRENT_CONFIG: &str = "/etc/machine-config-daemon/currentconfig";
/// Image-mode image of the machine; empty without one.
pub const CURRENT_IMAGE: &str = "/etc/machine-config-daemon/currentimage";
/// Annotations to set when the node first joins; removed once set.
pub(crate) const INITIAL_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
const INITIAL_ANNOTATIONS_DONE: &str = "/etc/machine-config-daemon/node-annotation.json.bak";
/// Config that first boot has yet to complete.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
const ENCAPSULATED_DONE: &str = "/etc/ignition-machine-config-encapsulated.json.bak";
/// Complete config that the machine was installed with.
pub(crate) const INSTALLED: &str = "/etc/mcs-machine-config-content.json";
/// Directory of the daemon's records.
pub const RECORDS: &str = "/etc/machine-config-daemon";
const IGNITION_PRESET: &str = "/etc/systemd/system-preset/20-ignition.preset";

/// A failure to read or write the daemon's own files.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file cannot be parsed.
    #[error("failed to parse {path}")]
    Parse {
        /// The file.
        path: &'static str,
        /// The parse error.
        source: serde_json::Error,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// Returns the recorded config of the machine, if any. A damaged record counts as missing.
pub fn current_config(root: &Root) -> Result<Option<MachineConfig>, DiskError> {
    undamaged(parsed(root, CURRENT_CONFIG))
}

/// Returns the name of the recorded config, if any.
pub fn current_name(root: &Root) -> Result<Option<String>, DiskError> {
    #[derive(serde::Deserialize)]
    struct Named {
        #[serde(default)]
        metadata: Metadata,
    }
    #[derive(Default, serde::Deserialize)]
    struct Metadata {
        name: Option<String>,
    }
    let named: Option<Named> = undamaged(parsed(root, CURRENT_CONFIG))?;
    Ok(named.map(|named| named.metadata.name.unwrap_or_default()))
}

/// Records the config of the machine.
pub fn record_config(root: &Root, config: &MachineConfig) -> Result<(), DiskError> {
    // The config last: it is the authoritative record.
    root.write(CURRENT_IMAGE, b"", 0o600)?;
    write(root, CURRENT_CONFIG, config)
}

/// Returns the annotations to set when the node first joins.
pub fn initial_annotations(root: &Root) -> Result<Option<BTreeMap<String, String>>, DiskError> {
    parsed(root, INITIAL_ANNOTATIONS)
}

/// Renames the file with the initial annotations once the node has joined.
pub fn has_joined(root: &Root) -> Result<(), DiskError> {
    if root.stat(INITIAL_ANNOTATIONS)?.is_some() {
        root.rename(INITIAL_ANNOTATIONS, INITIAL_ANNOTATIONS_DONE)?;
    }
    Ok(())
}

/// Returns the config that the machine was installed with, if still recorded.
pub(crate) fn installed_config(root: &Root) -> Result<Option<MachineConfig>, DiskError> {
    parsed(root, INSTALLED)
}

/// Removes the record of the machine's config.
pub(crate) fn forget_config(root: &Root) -> Result<(), DiskError> {
    root.remove(CURRENT_CONFIG)?;
    Ok(())
}

/// Removes files of first boot; returns true if first boot was not completed.
pub fn tidy_first_boot(root: &Root) -> Result<bool, DiskError> {
    root.remove(IGNITION_PRESET)?;
    let is_unfinished = root.stat(ENCAPSULATED)?.is_some();
    if is_unfinished {
        root.rename(ENCAPSULATED, ENCAPSULATED_DONE)?;
    }
    Ok(is_unfinished)
}

/// Writes one of the daemon's files, readable by root only.
pub(crate) fn write<T: serde::Serialize>(
    root: &Root,
    path: &'static str,
    value: &T,
) -> Result<(), DiskError> {
    let bytes = serde_json::to_vec(value).map_err(|source| DiskError::Parse { path, source })?;
    Ok(root.write(path, &bytes, 0o600)?)
}

/// Reads one of the daemon's files; none if it is missing or empty.
pub(crate) fn parsed<T: serde::de::DeserializeOwned>(
    root: &Root,
    path: &'static str,
) -> Result<Option<T>, DiskError> {
    let Some(bytes) = root.read(path)? else { return Ok(None) };
    // Compat: an empty file counts as missing (pkg/daemon/daemon.go).
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    serde_json::from_slice(&bytes).map(Some).map_err(|source| DiskError::Parse { path, source })
}

/// Takes a record that cannot be parsed for a missing one, which the daemon writes anew: no node
/// waits for ever because of it.
pub(crate) fn undamaged<T>(found: Result<Option<T>, DiskError>) -> Result<Option<T>, DiskError> {
    match found {
        Err(error @ DiskError::Parse { .. }) => {
            warn!(error = chain(&error), "Ignored a damaged record");
            Ok(None)
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C131
    #[test]
    fn a_damaged_record_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for text in ["{", "\0\0\0"] {
            root.write(CURRENT_CONFIG, text.as_bytes(), 0o600).unwrap();
            assert!(current_config(&root).unwrap().is_none(), "{text}");
            assert!(current_name(&root).unwrap().is_none(), "{text}");
        }
        // The initial annotations have no other source: a damaged file stays an error.
        root.write(INITIAL_ANNOTATIONS, b"{", 0o600).unwrap();
        assert!(initial_annotations(&root).is_err());
    }

    // covers: C22, C23
    #[test]
    fn leftovers_of_first_boot_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert!(!tidy_first_boot(&root).unwrap());
        root.write(ENCAPSULATED, b"{}", 0o600).unwrap();
        root.write(IGNITION_PRESET, b"enable a.service", 0o644).unwrap();
        assert!(tidy_first_boot(&root).unwrap(), "first boot was not completed");
        assert!(root.exists(ENCAPSULATED_DONE).unwrap());
        assert!(!root.exists(ENCAPSULATED).unwrap() && !root.exists(IGNITION_PRESET).unwrap());
    }
}
