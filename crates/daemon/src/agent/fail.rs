//! What can go wrong, and what the node then says of itself.

use mco_api::{
    NodeName, RenderedName,
    annotation::{self, BadAnnotation, DaemonState, DrainVerb},
    name::BadName,
};
use mco_cluster::report::chain;
use mco_core::{
    drift::Drift, machine::UnreadableConfig, plan::Refusal, status::machine_config_node::Event,
};
use mco_host::{RootError, System, SystemError};
use tokio::task::JoinError;
use tracing::{error, warn};

use super::Agent;
use crate::{
    cluster::{Changes, Cluster, ClusterError, Weight},
    confirm::TakenBack,
    decide::Missing,
    disk::DiskError,
    execute::ExecuteError,
    ledger::LedgerError,
    watch::WatchError,
};

/// Compat: longer reasons are cut (`pkg/daemon/writer.go`).
pub(super) const LONGEST_REASON: usize = 2000;

/// Why a node is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The disk is not as the config says.
    #[error("unexpected on-disk state validating against {config}: {drift}{}", because(.cause.as_deref()))]
    Drift {
        /// The config.
        config: RenderedName,
        /// The first difference.
        drift: Drift,
        /// When it was found.
        found: Found,
        /// What the end of the last boot said, which may well be why.
        cause: Option<String>,
    },
    /// The drain controller does not answer.
    #[error(
        "failed to {} node: {node} after {}. Please see machine-config-controller logs for more information",
        verb.as_str(), limit(*.verb)
    )]
    NoAnswer {
        /// What it was asked for.
        verb: DrainVerb,
        /// The node.
        node: NodeName,
    },
    /// The kubelet does not run as it did before the update.
    #[error(
        "the kubelet was well before this config and is not since: {0}. Correct the config or take it \
         back"
    )]
    Unwell(String),
    /// The config was taken back, and nobody asked to try it again.
    #[error(
        "config {} was taken back after its reboot: {}. Correct it, or create \
         /run/machine-config-daemon-force on the node to try it again", .0.config, .0.why
    )]
    TakenBack(TakenBack),
    /// The change is one that a running node cannot take.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The plan could not be carried out.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// A config cannot be read.
    #[error("parsing config {config} failed")]
    Config {
        /// The config.
        config: String,
        /// Why not.
        source: UnreadableConfig,
    },
    /// Something that the node must have is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The pool's config has a name that no node can follow.
    #[error(transparent)]
    Name(#[from] BadName),
    /// An annotation makes no sense.
    #[error(transparent)]
    Annotation(#[from] BadAnnotation),
    /// The daemon's own files cannot be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The tree cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The system does not answer.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The disk cannot be watched.
    #[error("could not start watcher")]
    Watch(#[from] WatchError),
    /// The cluster does not answer.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Certificates or pull secrets of the cluster are not on the machine.
    #[error("certificates are not up to date: {0}")]
    Certificates(String),
    /// The work on the machine broke off, which is a fault of ours.
    #[error("work on the machine broke off")]
    Broken(#[from] JoinError),
}

/// When a difference was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// When the daemon started.
    AtStart,
    /// Before an update, which is not begun then.
    BeforeUpdate,
    /// At any other time.
    Later,
}

fn because(cause: Option<&str>) -> String {
    cause.map(|cause| format!("; possible root cause: {cause}")).unwrap_or_default()
}

fn limit(verb: DrainVerb) -> &'static str {
    match verb {
        DrainVerb::Drain => "1 hour",
        DrainVerb::Uncordon => "10 minutes",
    }
}

/// What the node says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Nothing: the cluster cannot hear it, and the next try may do.
    Retry,
    /// That it failed.
    Degrade,
    /// That it cannot take the config at all.
    Refuse,
}

impl SyncError {
    fn class(&self) -> Class {
        match self {
            Self::Cluster(ClusterError::Call { .. }) => Class::Retry,
            Self::Refused(Refusal::Unreconcilable { .. }) => Class::Refuse,
            Self::Drift { .. }
            | Self::TakenBack(_)
            | Self::Unwell(_)
            | Self::NoAnswer { .. }
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
            | Self::Broken(_) => Class::Degrade,
        }
    }

    /// One word for programs.
    fn word(&self) -> &'static str {
        match self {
            Self::Drift { .. } => "ConfigDrift",
            Self::NoAnswer { verb: DrainVerb::Drain, .. } => "DrainTimeout",
            Self::NoAnswer { verb: DrainVerb::Uncordon, .. } => "UncordonTimeout",
            Self::TakenBack(_) => "ConfigTakenBack",
            Self::Unwell(_) => "KubeletUnwell",
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
            Self::Broken(_) => "Broken",
        }
    }

    /// The same, found when an update was to begin.
    pub(super) fn before_update(mut self) -> Self {
        if let Self::Drift { found, .. } = &mut self
            && *found == Found::Later
        {
            *found = Found::BeforeUpdate;
        }
        self
    }

    /// The event that goes with it.
    fn event(&self) -> Option<&'static str> {
        match self {
            Self::Drift { found: Found::AtStart, .. } => Some("OnDiskStateValidationFailed"),
            Self::Drift { found: Found::BeforeUpdate, .. } => {
                Some("PreflightConfigDriftCheckFailed")
            }
            Self::Drift { found: Found::Later, .. } => Some("ConfigDriftDetected"),
            Self::NoAnswer { verb: DrainVerb::Drain, .. } => Some("FailedToDrain"),
            Self::NoAnswer { verb: DrainVerb::Uncordon, .. } => Some("FailedToUncordon"),
            Self::TakenBack(_) => Some("ConfigTakenBack"),
            Self::Unwell(_) => Some("KubeletUnwell"),
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
            | Self::Broken(_) => None,
        }
    }
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Says what went wrong, where that is of any use.
    pub(super) async fn fail(&mut self, fault: &SyncError) {
        let text = chain(fault);
        let state = match fault.class() {
            Class::Retry => {
                warn!("{text}");
                return;
            }
            Class::Degrade => DaemonState::Degraded,
            Class::Refuse => DaemonState::Unreconcilable,
        };
        error!("Marking {state} due to: {text:?}");
        self.metrics.state(&state, fault.word(), &self.now());
        self.metrics.update("", fault.word(), &self.now());
        self.note(Event::Degraded(text.clone()));
        let reason: String = text.chars().take(LONGEST_REASON).collect();
        let is_news = self.known.annotations.get(annotation::REASON.name()) != Some(&reason);
        if let Some(event) = fault.event().filter(|_| is_news) {
            self.cluster.tell(Weight::Warning, event, &text).await;
        }
        self.glass.note(|shown| {
            shown.state = state.to_string();
            shown.reason.clone_from(&reason);
        });
        let mut changes = Changes::new();
        changes.insert(annotation::STATE.name().to_owned(), Some(state.to_string()));
        changes.insert(annotation::REASON.name().to_owned(), Some(reason));
        if let Err(error) = self.annotate(changes).await {
            warn!("Could not update annotation: {}", chain(&error));
        }
    }
}
