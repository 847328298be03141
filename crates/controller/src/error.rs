//! Errors of writes and reads that the controllers do.

use mco_cluster::CallError;

/// A write or read that failed at the API server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    #[error("failed to create MachineConfig {name}")]
    CreateConfig { name: String, source: CallError },
    #[error("failed to read MachineConfig {name}")]
    ReadConfig { name: String, source: CallError },
    #[error("failed to restore MachineConfig {name}")]
    RestoreConfig { name: String, source: CallError },
    #[error("failed to delete MachineConfig {name}")]
    DeleteConfig { name: String, source: CallError },
    #[error("failed to update KubeletConfig {name}")]
    UpdateKubeletConfig { name: String, source: CallError },
    #[error("failed to update the status of the ControllerConfig")]
    ControllerConfigStatus { source: CallError },
    #[error("failed to list MachineOSBuilds")]
    ListBuilds { source: CallError },
    #[error("failed to read the MachineOSBuild that MachineOSConfig {name} names")]
    ReadBuild { name: String, source: CallError },
    #[error("failed to clear the stale build of MachineOSConfig {name}")]
    ClearBuild { name: String, source: CallError },
    #[error("failed to set config {config} in pool {pool}")]
    SetPoolConfig { pool: String, config: String, source: CallError },
    #[error("failed to update {kind} {name}")]
    PatchSettings { kind: &'static str, name: String, source: CallError },
    #[error("failed to set pinnedImageSets in pool {pool}")]
    PinImages { pool: String, source: CallError },
    #[error("failed to update the status of pool {pool}")]
    PoolStatus { pool: String, source: CallError },
    #[error("setting desired {config} for node {node}")]
    SetDesiredConfig { node: String, config: String, source: CallError },
    #[error("failed to check CertificateSigningRequest {name}")]
    CheckRequest { name: String, source: CallError },
    #[error("failed to approve CertificateSigningRequest {name}")]
    ApproveRequest { name: String, source: CallError },
    #[error("node {node}: failed to cordon")]
    Cordon { node: String, source: CallError },
    #[error("node {node}: node is still schedulable after cordon")]
    NotCordoned { node: String },
    #[error("node {node}: failed to uncordon")]
    Uncordon { node: String, source: CallError },
    #[error("node {node}: failed to set lastAppliedDrain")]
    AcknowledgeDrain { node: String, source: CallError },
    #[error("node {node}: failed to update drainRecord")]
    RecordDrain { node: String, source: CallError },
    #[error("failed to set the pool labels of node {node}")]
    LabelNode { node: String, source: CallError },
    #[error("failed to patch node {node}")]
    PatchNode { node: String, source: CallError },
    #[error("failed to write MachineConfigNode {node}")]
    WriteMachineConfigNode { node: String, source: CallError },
    #[error("timed out watching the pods of node {node}")]
    WatchPods { node: String },
    #[error("failed to list the pods of node {node}")]
    ListPods { node: String, source: CallError },
}
