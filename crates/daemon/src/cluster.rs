//! The cluster, as far as one daemon sees it: its own node, and the configs it needs by name.

mod real;

use std::{collections::BTreeMap, future::Future};

use mco_api::{
    MachineConfig, annotation::DriftPolicy, machine_configuration::disruption::ClusterPolicies,
};

pub use self::real::{ApiCluster, follow, pool_config};

/// Annotations to set, or with `None` to take away.
pub type Changes = BTreeMap<String, Option<String>>;

/// The annotations of the node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Grows with every change.
    pub version: u64,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Why the cluster did not answer, in its own words.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no such config.
    #[error("machineconfig.machineconfiguration.openshift.io {0:?} not found")]
    NoConfig(String),
    /// The API server did not answer, or refused.
    #[error("cannot {what}")]
    Call {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Something went on as it should.
    Normal,
    /// Somebody may have to look.
    Warning,
}

/// The cluster, as far as one daemon sees it.
pub trait Cluster: Send + Sync + 'static {
    /// The config of this name.
    fn machine_config(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<MachineConfig, ClusterError>> + Send;

    /// The config that the node's pool is to have; none while there is no such pool or config.
    fn pool_config(
        &self,
    ) -> impl Future<Output = Result<Option<MachineConfig>, ClusterError>> + Send;

    /// The node disruption policies in force; none if the cluster has no say.
    fn policies(
        &self,
    ) -> impl Future<Output = Result<Option<ClusterPolicies>, ClusterError>> + Send;

    /// What the node's pool wants done about drift.
    fn drift_policy(&self) -> impl Future<Output = Result<DriftPolicy, ClusterError>> + Send;

    /// How many minutes the node's pool gives its nodes to prove healthy; none if it does not say.
    fn confirm_minutes(&self) -> impl Future<Output = Result<Option<String>, ClusterError>> + Send {
        async { Ok(None) }
    }

    /// Changes annotations of the node; answers with the node as it is then.
    fn annotate(
        &self,
        changes: &Changes,
    ) -> impl Future<Output = Result<NodeState, ClusterError>> + Send;

    /// Tells people what happened.
    fn tell(
        &self,
        weight: Weight,
        reason: &'static str,
        text: &str,
    ) -> impl Future<Output = ()> + Send;
}
