//! The daemon's view of the cluster: its own node, and the objects that it reads by name.

mod api;
pub(crate) mod object_watch;

use std::{collections::BTreeMap, future::Future, time::Duration};

use mco_api::{
    MachineConfig,
    annotation::{self, DriftPolicy, Recovery},
    machine_configuration::{StorageOverride, disruption::ClusterPolicies},
};
use mco_core::membership::MembershipError;
use mco_host::MachineRole;
use tokio::time::Instant;

pub(crate) use self::api::answered_state;
pub use self::api::{ApiCluster, pool_config, watch_node};
use crate::machine_config_node::StatusUpdate;

/// Annotations to set, or with `None` to remove.
pub type Changes = BTreeMap<String, Option<String>>;

/// The metadata of the node at one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Resource version; grows with every change in one history of the API server.
    pub version: u64,
    /// Time at which a write was answered, or at which the list was requested that the watch follows.
    pub since: Option<Instant>,
    /// Annotations of the node.
    pub annotations: BTreeMap<String, String>,
    /// Role of the node.
    pub role: MachineRole,
}

impl NodeState {
    /// Returns true if the administrator had the machine forgotten.
    pub(crate) fn is_forgotten(&self) -> bool {
        annotation::RECOVER.get(&self.annotations).is_ok_and(|it| it == Some(Recovery::Forgotten))
    }

    /// Returns true if this state, which the watch delivered, is `known` or a later one.
    ///
    /// A list that was requested after `known` was read is later whatever its version is: after a
    /// restore of etcd, versions are lower than before.
    pub(crate) fn is_at_least(&self, known: &Self) -> bool {
        self.version >= known.version || self.since > known.since
    }
}

/// A failed request. Compat: the texts are the reference's.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The MachineConfig does not exist.
    #[error("machineconfig.machineconfiguration.openshift.io {0:?} not found")]
    NoConfig(String),
    /// The node's pool cannot be determined.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The operator has not published the merged policies of the latest generation.
    #[error(
        "NodeDisruptionPolicyStatus was not ready: NodeDisruptionPolicyStatus is not up to date"
    )]
    StalePolicies,
    /// The API server did not respond, or refused.
    #[error("failed to {what}")]
    Call {
        /// The attempted action.
        what: String,
        /// The error of the client.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// An expected event.
    Normal,
    /// An event that may need the administrator's attention.
    Warning,
}

/// The administrator's settings for updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Node disruption policies: the action that each change needs.
    pub policies: ClusterPolicies,
    /// Storage changes that are allowed despite being irreconcilable.
    pub overrides: Vec<StorageOverride>,
}

/// The requests that a daemon makes to the cluster.
pub trait Cluster: Send + Sync + 'static {
    /// Fetches a MachineConfig by name.
    fn machine_config(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<MachineConfig, ClusterError>> + Send;

    /// Fetches the rendered config of the node's pool; none while the pool or its config does not
    /// exist.
    fn pool_config(
        &self,
    ) -> impl Future<Output = Result<Option<MachineConfig>, ClusterError>> + Send;

    /// Fetches the current settings. Waits at most `limit` for the operator to publish the policies
    /// of the latest generation.
    fn rules(&self, limit: Duration) -> impl Future<Output = Result<Rules, ClusterError>> + Send;

    /// Fails if the node's pool cannot be determined.
    fn check_pool(&self) -> impl Future<Output = Result<(), ClusterError>> + Send;

    /// Fetches the drift policy of the node's pool.
    fn drift_policy(&self) -> impl Future<Output = Result<DriftPolicy, ClusterError>> + Send;

    /// Fetches the confirmation time of the node's pool, as written in its annotation.
    fn confirmation_time(
        &self,
    ) -> impl Future<Output = Result<Option<String>, ClusterError>> + Send {
        async { Ok(None) }
    }

    /// Fetches the drain timeout that the node's pool sets, if it sets a valid one.
    fn drain_timeout(&self) -> impl Future<Output = Result<Option<Duration>, ClusterError>> + Send {
        async { Ok(None) }
    }

    /// Patches annotations of the node; returns the patched node.
    fn annotate(
        &self,
        changes: &Changes,
    ) -> impl Future<Output = Result<NodeState, ClusterError>> + Send;

    /// Queues a status update of the node's MachineConfigNode. Never waits and never fails.
    fn report_status(&self, update: StatusUpdate);

    /// Waits a little until the queued status updates are written.
    fn flush(&self) -> impl Future<Output = ()> + Send;

    /// Publishes an event about the node.
    fn publish_event(
        &self,
        event_type: EventType,
        reason: &'static str,
        text: &str,
    ) -> impl Future<Output = ()> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_state_of_a_later_list_is_later_whatever_its_version() {
        let start = Instant::now();
        let at = |version: u64, seconds: u64| NodeState {
            version,
            since: Some(start + Duration::from_secs(seconds)),
            ..NodeState::default()
        };
        let rows = [
            // The watch lags behind a write.
            (at(7, 0), at(9, 5), false),
            (at(9, 0), at(9, 5), true),
            (at(12, 0), at(9, 5), true),
            // etcd was restored, and the node was listed after the write.
            (at(3, 6), at(9, 5), true),
            // The list was requested before the write was answered.
            (at(3, 4), at(9, 5), false),
        ];
        for (observed, known, expected) in rows {
            assert_eq!(observed.is_at_least(&known), expected, "{observed:?} {known:?}");
        }
        assert!(at(1, 0).is_at_least(&NodeState::default()));
    }
}
