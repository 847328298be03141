//! The record of a join: what it needs to continue after a power cut, readable by root only.

use std::fmt;

use mco_host::Root;
use serde::{Deserialize, Serialize};

use crate::disk::{self, DiskError};

/// Directory of the join's own files.
pub(super) const FOLDER: &str = "/var/lib/machine-config-daemon/join";
/// The record.
pub const RECORD: &str = "/var/lib/machine-config-daemon/join/join.json";
/// The served document.
pub(super) const DOCUMENT: &str = "/var/lib/machine-config-daemon/join/config.ign";

/// The stage of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JoinStage {
    /// The config is being fetched.
    Fetching,
    /// The config is being applied.
    Applying,
    /// The machine reboots into the operating system of the config.
    Rebooting,
    /// The units of the config are being started.
    Starting,
    /// The kubelet registers its node.
    Registering,
    /// The node exists.
    Joined,
}

/// The record of a join. `Debug` does not print the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinRecord {
    /// URL of the config server.
    pub server: String,
    /// Pool of the machine.
    pub pool: String,
    /// Certificates of the authorities to trust, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// SHA-256 of the certificate to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_sha256: Option<String>,
    /// Join token; removed when the machine has joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Name of the node.
    pub node: String,
    /// True if the name is not the machine's own.
    #[serde(default)]
    pub is_renamed: bool,
    /// Id of this join in all requests.
    pub join_id: String,
    /// Stage that is to be completed next.
    pub stage: JoinStage,
    /// Id of the boot in which the reboot was requested.
    #[serde(default)]
    pub rebooted_from: String,
    /// Number of reboots into the operating system of the config.
    #[serde(default)]
    pub reboots: u32,
}

impl fmt::Debug for JoinRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinRecord")
            .field("server", &self.server)
            .field("pool", &self.pool)
            .field("node", &self.node)
            .field("join_id", &self.join_id)
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

/// Returns the record, if the machine joins or has joined.
pub fn load(root: &Root) -> Result<Option<JoinRecord>, DiskError> {
    disk::parsed(root, RECORD)
}

/// Writes the record.
pub fn save(root: &Root, record: &JoinRecord) -> Result<(), DiskError> {
    disk::write(root, RECORD, record)
}

/// Keeps the served document, so that the same one is applied after a power cut.
pub fn keep_document(root: &Root, document: &[u8]) -> Result<(), DiskError> {
    Ok(root.write(DOCUMENT, document, 0o600)?)
}

/// Returns the kept document.
pub fn document(root: &Root) -> Result<Option<Vec<u8>>, DiskError> {
    Ok(root.read(DOCUMENT)?)
}
