//! The cluster, as far as one daemon sees it: its own node, and the configs it needs by name.

pub(crate) mod follow;
mod real;

use std::{collections::BTreeMap, future::Future, time::Duration};

use mco_api::{
    MachineConfig,
    annotation::DriftPolicy,
    machine_configuration::{StorageOverride, disruption::ClusterPolicies},
};
use mco_core::membership::MembershipError;
use mco_host::Duty;

pub(crate) use self::real::state;
pub use self::real::{ApiCluster, follow, pool_config};
use crate::report::Said;

/// Annotations to set, or with `None` to take away.
pub type Changes = BTreeMap<String, Option<String>>;

/// The annotations of the node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Grows with every change.
    pub version: u64,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// What the node is for.
    pub duty: Duty,
}

/// Why the cluster did not answer, in its own words.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// There is no such config.
    #[error("machineconfig.machineconfiguration.openshift.io {0:?} not found")]
    NoConfig(String),
    /// It cannot be said which pool the node belongs to.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The operator has not said what the latest change of the policies comes to.
    #[error(
        "NodeDisruptionPolicyStatus was not ready: NodeDisruptionPolicyStatus is not up to date"
    )]
    StalePolicies,
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

/// What the administrator says about updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What a change asks for.
    pub policies: ClusterPolicies,
    /// Changes to storage that are let through.
    pub overrides: Vec<StorageOverride>,
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

    /// The rules in force. Waits at most `limit` for the operator to say what their latest change comes
    /// to.
    fn rules(&self, limit: Duration) -> impl Future<Output = Result<Rules, ClusterError>> + Send;

    /// Refuses a node of which nobody can say which pool it belongs to.
    fn check_pool(&self) -> impl Future<Output = Result<(), ClusterError>> + Send;

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

    /// Says how the update goes, in the node's MachineConfigNode. Never waits and never fails.
    fn note(&self, said: Said);

    /// Waits a little for all that to be written.
    fn flush(&self) -> impl Future<Output = ()> + Send;

    /// Tells people what happened.
    fn tell(
        &self,
        weight: Weight,
        reason: &'static str,
        text: &str,
    ) -> impl Future<Output = ()> + Send;
}
