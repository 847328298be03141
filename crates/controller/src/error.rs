//! What can go wrong while a controller acts.

use mco_cluster::CallError;

/// A write or read that the API server did not carry out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActError {
    #[error("cannot create MachineConfig {name}")]
    CreateConfig { name: String, source: CallError },
    #[error("cannot look at MachineConfig {name}")]
    ReadConfig { name: String, source: CallError },
    #[error("cannot put MachineConfig {name} back as it was made")]
    RestoreConfig { name: String, source: CallError },
    #[error("cannot remove MachineConfig {name}")]
    RemoveConfig { name: String, source: CallError },
    #[error("cannot list the MachineOSBuilds")]
    ListBuilds { source: CallError },
    #[error("cannot look at the build that MachineOSConfig {name} names")]
    ReadBuild { name: String, source: CallError },
    #[error("cannot take the stale build off MachineOSConfig {name}")]
    ForgetBuild { name: String, source: CallError },
    #[error("cannot point pool {pool} at {config}")]
    TargetPool { pool: String, config: String, source: CallError },
    #[error("cannot say in pool {pool} which images to pin")]
    PinImages { pool: String, source: CallError },
    #[error("cannot write the status of pool {pool}")]
    PoolStatus { pool: String, source: CallError },
    #[error("setting desired {config} for node {node}")]
    TargetNode { node: String, config: String, source: CallError },
    #[error("node {node}: failed to cordon")]
    Cordon { node: String, source: CallError },
    #[error("node {node}: it was cordoned and is still open to pods")]
    NotCordoned { node: String },
    #[error("node {node}: failed to uncordon")]
    Uncordon { node: String, source: CallError },
    #[error("node {node}: cannot answer the drain request")]
    AnswerDrain { node: String, source: CallError },
    #[error("node {node}: cannot write down how its drain goes")]
    RecordDrain { node: String, source: CallError },
    #[error("cannot label node {node} for its pool")]
    LabelNode { node: String, source: CallError },
    #[error("cannot mark node {node}")]
    MarkNode { node: String, source: CallError },
    #[error("cannot write MachineConfigNode {node}")]
    WriteReport { node: String, source: CallError },
    #[error("cannot watch the pods of node {node}")]
    WatchPods { node: String },
    #[error("cannot list the pods of node {node}")]
    ListPods { node: String, source: CallError },
}
