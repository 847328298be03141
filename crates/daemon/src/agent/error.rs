//! Errors of a sync, and their report on the node.

use std::time::Duration;

use mco_api::{
    NodeName, RenderedName,
    annotation::{self, AnnotationError, DaemonState, DrainVerb},
    name::NameError,
};
use mco_cluster::report::chain;
use mco_core::{
    drain::in_words, drift::Drift, machine::UnreadableConfig, plan::Refusal,
    status::update_conditions::UpdateEvent,
};
use mco_host::{RootError, System, SystemError};
use tokio::task::JoinError;
use tracing::{error, warn};

use super::Agent;
use crate::{
    cluster::{Changes, Cluster, ClusterError, EventType},
    confirm::RolledBackConfig,
    decide::MissingAnnotation,
    disk::DiskError,
    execute::ExecuteError,
    ledger::LedgerError,
    watch::WatchError,
};

/// Longest reason annotation. Compat: longer reasons are cut (`pkg/daemon/writer.go`).
pub(super) const MAX_REASON: usize = 2000;

/// First words of the reason annotation of a node with config drift.
pub(super) const DRIFT_REASON: &str = "unexpected on-disk state validating against";

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
    /// The plan failed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// A config cannot be read.
    #[error("parsing config {config} failed")]
    Config {
        /// The config.
        config: String,
        /// The parse error.
        source: UnreadableConfig,
    },
    /// A required annotation is missing.
    #[error(transparent)]
    Missing(#[from] MissingAnnotation),
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

/// The occasion on which drift was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftDetected {
    /// The first verification after the daemon started.
    AtStart,
    /// The preflight check of an update, which is not started then.
    BeforeUpdate,
    /// Any other verification.
    WhileRunning,
}

fn because(cause: Option<&str>) -> String {
    cause.map(|cause| format!("; possible root cause: {cause}")).unwrap_or_default()
}

/// The state that an error leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DegradeClass {
    /// No state: the API server failed, so that it cannot be reported either. The sync is retried.
    Retry,
    /// Degraded.
    Degrade,
    /// Unreconcilable: the node cannot take the config at all.
    Unreconcilable,
}

impl SyncError {
    fn class(&self) -> DegradeClass {
        match self {
            Self::Cluster(ClusterError::Call { .. }) => DegradeClass::Retry,
            Self::Refused(Refusal::Unreconcilable { .. }) => DegradeClass::Unreconcilable,
            Self::Drift { .. }
            | Self::RolledBack(_)
            | Self::KubeletUnhealthy(_)
            | Self::DrainTimeout { .. }
            | Self::Refused(Refusal::Registries(_) | Refusal::Broken { .. })
            | Self::Execute(_)
            | Self::Config { .. }
            | Self::Missing(_)
            | Self::Name(_)
            | Self::Annotation(_)
            | Self::Disk(_)
            | Self::Ledger(_)
            | Self::Root(_)
            | Self::System(_)
            | Self::Watch(_)
            | Self::Certificates(_)
            | Self::Cluster(
                ClusterError::NoConfig(_)
                | ClusterError::Membership(_)
                | ClusterError::StalePolicies,
            )
            | Self::Panicked(_) => DegradeClass::Degrade,
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
            Self::Refused(_) => "Unreconcilable",
            Self::Execute(ExecuteError::Reboot(_)) => "RebootFailed",
            Self::Execute(_) => "ApplyFailed",
            Self::Config { .. } => "UnreadableConfig",
            Self::Missing(_) => "NoDesiredConfig",
            Self::Name(_) | Self::Annotation(_) => "BadAnnotation",
            Self::Disk(_) | Self::Ledger(_) | Self::Root(_) => "DiskFailed",
            Self::System(_) => "SystemFailed",
            Self::Watch(_) => "WatchFailed",
            Self::Certificates(_) => "CertificatesFailed",
            Self::Cluster(ClusterError::NoConfig(_)) => "ConfigNotFound",
            Self::Cluster(ClusterError::Membership(_)) => "SeveralPools",
            Self::Cluster(ClusterError::StalePolicies) => "PoliciesNotReady",
            Self::Cluster(ClusterError::Call { .. }) => "ApiFailed",
            Self::Panicked(_) => "Broken",
        }
    }

    /// Marks drift as detected by the preflight check of an update.
    pub(super) fn before_update(mut self) -> Self {
        if let Self::Drift { detected, .. } = &mut self
            && *detected == DriftDetected::WhileRunning
        {
            *detected = DriftDetected::BeforeUpdate;
        }
        self
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
            Self::Refused(_) => Some("FailedToReconcile"),
            Self::Execute(ExecuteError::Reload { .. }) => Some("FailedServiceReload"),
            Self::Execute(ExecuteError::Restart { .. }) => Some("FailedServiceRestart"),
            Self::Execute(_)
            | Self::Config { .. }
            | Self::Missing(_)
            | Self::Name(_)
            | Self::Annotation(_)
            | Self::Disk(_)
            | Self::Ledger(_)
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
    /// Reports an error in the node's state, metrics and events, unless it is only retried.
    pub(super) async fn fail(&mut self, fault: &SyncError) {
        let text = chain(fault);
        let state = match fault.class() {
            DegradeClass::Retry => {
                warn!("{text}");
                return;
            }
            DegradeClass::Degrade => DaemonState::Degraded,
            DegradeClass::Unreconcilable => DaemonState::Unreconcilable,
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
