//! Errors of a sync, and their report on the node.

use std::time::Duration;

use mco_api::{
    NodeName, RenderedName,
    annotation::{self, AnnotationError, DaemonState, DrainVerb},
    name::NameError,
};
use mco_apply::{disk::DiskError, execute::ExecuteError, forget::ForgetError, ledger::LedgerError};
use mco_cluster::report::chain;
use mco_core::{
    drain::in_words,
    drift::Drift,
    lifecycle::{Cause, DRIFT_REASON, DriftDetected, NotRepaired, RolledBackConfig, Severity},
    plan::Refusal,
    status::update_conditions::UpdateEvent,
};
use mco_host::{HostError, RootError, System, SystemError};
use tokio::task::JoinError;
use tracing::{error, warn};

use super::Agent;
use crate::{
    cluster::{Changes, Cluster, ClusterError, EventType},
    watch::WatchError,
};

/// Longest reason annotation. Compat: longer reasons are cut (`pkg/daemon/writer.go`).
pub(super) const MAX_REASON: usize = 2000;

/// A failed sync.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The disk differs from the config.
    #[error("{DRIFT_REASON} {config}: {drift}{}", because(.cause.as_deref()))]
    Drift {
        /// The config.
        config: RenderedName,
        /// The first difference.
        drift: Drift,
        /// The occasion on which the drift was detected.
        detected: DriftDetected,
        /// The error of the last deployment's finalization, which may be the cause.
        cause: Option<String>,
    },
    /// The drain controller did not complete a request in time.
    #[error(
        "failed to {} node: {node} after {}. Please see machine-config-controller logs for more information",
        verb.as_str(), in_words(*.limit)
    )]
    DrainTimeout {
        /// The requested action.
        verb: DrainVerb,
        /// The node.
        node: NodeName,
        /// Time limit of the request.
        limit: Duration,
    },
    /// The kubelet was healthy before the update and is not since.
    #[error(
        "kubelet is unhealthy since this config was applied: {0}. Fix the config or roll it \
         back"
    )]
    KubeletUnhealthy(String),
    /// The config was rolled back after its reboot and no force file asks to retry it.
    #[error(
        "config {} was rolled back after its reboot: {}. Fix the config, or create \
         /run/machine-config-daemon-force on the node to retry it", .0.config, .0.why
    )]
    RolledBack(RolledBackConfig),
    /// The change is not possible on a running node.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The machine has something else where the config puts a file.
    #[error(transparent)]
    Obstructed(HostError),
    /// The plan failed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The machine was told to reboot and still runs.
    #[error(
        "the machine was told to reboot into config {config} and still runs after {}. See `systemctl \
         list-jobs` and `systemd-inhibit --list` on the node, or reboot it; the reboot is retried",
        in_words(*.limit)
    )]
    RebootOverdue {
        /// The config.
        config: String,
        /// Time limit of the reboot.
        limit: Duration,
    },
    /// The record of an unfinished update cannot be read.
    #[error(
        "the record of an unfinished update cannot be used: {0}. `mco node recover` abandons the \
         update and applies the desired config in full"
    )]
    UnreadableUpdate(String),
    /// The controller has not set the desired config.
    #[error("{} annotation not found on the node", annotation::DESIRED_CONFIG)]
    NoDesiredConfig,
    /// No update is prepared, which is a bug.
    #[error("no update is prepared")]
    Unprepared,
    /// The name of the pool's config is not a valid config name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// An annotation cannot be parsed.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// The daemon's own files cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The daemon's own files cannot be removed.
    #[error(transparent)]
    Forget(#[from] ForgetError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
    /// A call to the operating system failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The drift watch cannot be started.
    #[error("could not start watcher")]
    Watch(#[from] WatchError),
    /// A request to the API server failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Certificates or pull secrets are not up to date.
    #[error("certificates are not up to date: {0}")]
    Certificates(String),
    /// Work on the machine panicked, which is a bug.
    #[error("work on the machine panicked")]
    Panicked(#[from] JoinError),
}

fn because(cause: Option<&str>) -> String {
    cause.map(|cause| format!("; possible root cause: {cause}")).unwrap_or_default()
}

impl SyncError {
    /// Returns the severity of the error.
    pub(super) fn severity(&self) -> Severity {
        match self {
            Self::Cluster(ClusterError::Call { .. }) => Severity::Transient,
            Self::Refused(Refusal::Unreconcilable { .. })
            | Self::Obstructed(HostError::Obstructed { .. } | HostError::InImage { .. }) => {
                Severity::Unreconcilable
            }
            Self::Drift { .. }
            | Self::RolledBack(_)
            | Self::KubeletUnhealthy(_)
            | Self::DrainTimeout { .. }
            | Self::RebootOverdue { .. }
            | Self::Refused(Refusal::Registries(_) | Refusal::Broken { .. })
            | Self::Obstructed(_)
            | Self::Execute(_)
            | Self::NoDesiredConfig
            | Self::UnreadableUpdate(_)
            | Self::Unprepared
            | Self::Name(_)
            | Self::Annotation(_)
            | Self::Disk(_)
            | Self::Ledger(_)
            | Self::Forget(_)
            | Self::Root(_)
            | Self::System(_)
            | Self::Watch(_)
            | Self::Certificates(_)
            | Self::Cluster(
                ClusterError::NoConfig(_)
                | ClusterError::Membership(_)
                | ClusterError::StalePolicies,
            )
            | Self::Panicked(_) => Severity::Degraded,
        }
    }

    /// Converts an error of reading the disk.
    pub(super) fn of_disk(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Disk(error) => Self::Disk(error),
            ExecuteError::Ledger(error) => Self::Ledger(error),
            ExecuteError::System(error) => Self::System(error),
            error @ (ExecuteError::Host(_)
            | ExecuteError::Reload { .. }
            | ExecuteError::Restart { .. }
            | ExecuteError::Reboot(_)
            | ExecuteError::Config { .. }
            | ExecuteError::Absent(_)
            | ExecuteError::Restore(_)
            | ExecuteError::Undo { .. }
            | ExecuteError::Undone(_)) => Self::Execute(error),
        }
    }

    /// Returns the reason label of the metrics.
    fn metric_reason(&self) -> &'static str {
        match self {
            Self::Drift { .. } => "ConfigDrift",
            Self::DrainTimeout { verb: DrainVerb::Drain, .. } => "DrainTimeout",
            Self::DrainTimeout { verb: DrainVerb::Uncordon, .. } => "UncordonTimeout",
            Self::RolledBack(_) => "ConfigTakenBack",
            Self::KubeletUnhealthy(_) => "KubeletUnwell",
            Self::Refused(_) | Self::Obstructed(_) => "Unreconcilable",
            Self::RebootOverdue { .. } | Self::Execute(ExecuteError::Reboot(_)) => "RebootFailed",
            Self::Execute(ExecuteError::Config { .. }) => "UnreadableConfig",
            Self::Execute(_) => "ApplyFailed",
            Self::NoDesiredConfig => "NoDesiredConfig",
            Self::Name(_) | Self::Annotation(_) => "BadAnnotation",
            Self::Disk(_)
            | Self::Ledger(_)
            | Self::Forget(_)
            | Self::Root(_)
            | Self::UnreadableUpdate(_) => "DiskFailed",
            Self::System(_) => "SystemFailed",
            Self::Watch(_) => "WatchFailed",
            Self::Certificates(_) => "CertificatesFailed",
            Self::Cluster(ClusterError::NoConfig(_)) => "ConfigNotFound",
            Self::Cluster(ClusterError::Membership(_)) => "SeveralPools",
            Self::Cluster(ClusterError::StalePolicies) => "PoliciesNotReady",
            Self::Cluster(ClusterError::Call { .. }) => "ApiFailed",
            Self::Unprepared | Self::Panicked(_) => "Broken",
        }
    }

    /// Returns the reason of the event to publish, if any.
    fn event(&self) -> Option<&'static str> {
        match self {
            Self::Drift { detected: DriftDetected::AtStart, .. } => {
                Some("OnDiskStateValidationFailed")
            }
            Self::Drift { detected: DriftDetected::BeforeUpdate, .. } => {
                Some("PreflightConfigDriftCheckFailed")
            }
            Self::Drift { detected: DriftDetected::WhileRunning, .. } => {
                Some("ConfigDriftDetected")
            }
            Self::DrainTimeout { verb: DrainVerb::Drain, .. } => Some("FailedToDrain"),
            Self::DrainTimeout { verb: DrainVerb::Uncordon, .. } => Some("FailedToUncordon"),
            Self::RolledBack(_) => Some("ConfigTakenBack"),
            Self::KubeletUnhealthy(_) => Some("KubeletUnwell"),
            Self::Refused(_) | Self::Obstructed(_) => Some("FailedToReconcile"),
            Self::Execute(ExecuteError::Reload { .. }) => Some("FailedServiceReload"),
            Self::Execute(ExecuteError::Restart { .. }) => Some("FailedServiceRestart"),
            Self::RebootOverdue { .. } => Some("RebootOverdue"),
            Self::UnreadableUpdate(_) => Some("UpdateUnreadable"),
            Self::Execute(_)
            | Self::NoDesiredConfig
            | Self::Unprepared
            | Self::Name(_)
            | Self::Annotation(_)
            | Self::Disk(_)
            | Self::Ledger(_)
            | Self::Forget(_)
            | Self::Root(_)
            | Self::System(_)
            | Self::Watch(_)
            | Self::Certificates(_)
            | Self::Cluster(_)
            | Self::Panicked(_) => None,
        }
    }
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Returns the error with this cause.
    pub(super) fn error_of(&mut self, cause: Cause) -> Option<SyncError> {
        Some(match cause {
            Cause::Action(_) => return self.fault.take(),
            Cause::NoDesiredConfig => SyncError::NoDesiredConfig,
            Cause::Drift { config, drift, detected, left } => {
                if let Some(why) = left.filter(|why| *why != NotRepaired::Policy) {
                    warn!(reason = %why, "Config drift left unrepaired");
                }
                let now = self.now();
                self.metrics.drift(Some(&now));
                self.glass.update(|state| state.drift = Some(drift.to_string()));
                let cause = self.root_cause.clone();
                SyncError::Drift { config, drift, detected, cause }
            }
            Cause::DrainTimeout { verb, limit } => {
                SyncError::DrainTimeout { verb, node: self.node.clone(), limit }
            }
            Cause::KubeletUnhealthy(why) => SyncError::KubeletUnhealthy(why),
            Cause::RolledBack(back) => SyncError::RolledBack(back),
            Cause::Certificates(text) => SyncError::Certificates(text),
            Cause::UnreadableUpdate(why) => SyncError::UnreadableUpdate(why),
            Cause::RebootOverdue { config, limit } => {
                self.metrics.reboot_failed();
                SyncError::RebootOverdue { config, limit }
            }
        })
    }

    /// Reports an error in the node's state, metrics and events, unless it is only retried.
    pub(super) async fn fail(&mut self, fault: &SyncError) {
        let text = chain(fault);
        let state = match fault.severity() {
            Severity::Transient => {
                warn!("{text}");
                return;
            }
            Severity::Degraded => DaemonState::Degraded,
            Severity::Unreconcilable => DaemonState::Unreconcilable,
        };
        error!("Marking {state} due to: {text:?}");
        self.metrics.state(&state, fault.metric_reason(), &self.now());
        self.metrics.update("", fault.metric_reason(), &self.now());
        self.report_event(UpdateEvent::Degraded(text.clone()));
        let reason: String = text.chars().take(MAX_REASON).collect();
        let is_new = self.node_state.annotations.get(annotation::REASON.name()) != Some(&reason);
        if let Some(event) = fault.event().filter(|_| is_new) {
            self.cluster.publish_event(EventType::Warning, event, &text).await;
        }
        self.publish_transition(state.as_str(), &reason);
        let mut changes = Changes::new();
        changes.insert(annotation::STATE.name().to_owned(), Some(state.to_string()));
        changes.insert(annotation::REASON.name().to_owned(), Some(reason));
        if let Err(error) = self.annotate(changes).await {
            warn!("Could not update annotation: {}", chain(&error));
        }
    }
}
