//! The observations that decide about a node: its annotations, and the records on its disk.
//!
//! The disk has precedence on the node's current config: the annotations may be older, restored
//! from a backup, or gone.

use std::{collections::BTreeMap, time::Duration};

use mco_api::{
    RenderedName,
    annotation::{
        self, AnnotationError, DaemonState, DrainRequest, DrainVerb, PostConfigAction, Recovery,
        Topology,
    },
};

use super::{Outcome, Progress, RolledBackConfig};

/// Everything that the next decision about a node depends on, besides its state and the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// Annotations of the node; none before the daemon has joined the cluster.
    pub node: Option<NodeAnnotations>,
    /// Records on the disk.
    pub disk: DiskView,
    /// Error of the certificate sync.
    pub certificates: Option<String>,
    /// Outcome of the last action.
    pub outcome: Outcome,
}

/// The annotations of a node that the daemon reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAnnotations {
    /// Config of the node.
    pub current: Option<RenderedName>,
    /// Desired config of the node.
    pub desired: Option<RenderedName>,
    /// State of the daemon.
    pub state: Option<DaemonState>,
    /// Reason of the state.
    pub reason: String,
    /// Last request to the drain controller.
    pub requested_drain: Option<DrainRequest>,
    /// Last request that the drain controller completed.
    pub last_applied_drain: Option<DrainRequest>,
    /// True if the daemon announced a reboot.
    pub rebooting: bool,
    /// Topology of the control plane.
    pub topology: Option<Topology>,
    /// Way out of an update that cannot be completed.
    pub recover: Option<Recovery>,
}

/// The daemon's records on the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskView {
    /// Recorded config.
    pub current: Option<RenderedName>,
    /// Annotations to set when the node first joins.
    pub initial_annotations: Option<BTreeMap<String, String>>,
    /// Unfinished update.
    pub update: Option<UnfinishedUpdate>,
    /// Reason why the record of an unfinished update cannot be read.
    pub unreadable: Option<String>,
    /// Id of the current boot.
    pub boot_id: String,
    /// True if a force file asks to apply the config again.
    pub force: bool,
    /// True if only an abandoned update asks for that: it does not allow a config that was rolled back.
    pub abandoned: bool,
    /// Config that was rolled back last, if it is still refused.
    pub rolled_back: Option<RolledBackConfig>,
}

/// An update that was begun and has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedUpdate {
    /// Name of the previous config.
    pub from: String,
    /// Name of the target config.
    pub to: String,
    /// Id of the boot in which the update began.
    pub began_in: String,
    /// Progress of the update.
    pub progress: Progress,
    /// Time to prove healthy after the reboot; none if no confirmation is required.
    pub deadline: Option<Duration>,
    /// True if the machine runs the OS image and the kernel arguments of the target config.
    pub is_booted: bool,
}

impl NodeAnnotations {
    /// Parses the annotations of a node.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Self, AnnotationError> {
        Ok(Self {
            current: annotation::CURRENT_CONFIG.get(annotations)?,
            desired: annotation::DESIRED_CONFIG.get(annotations)?,
            state: annotation::STATE.get(annotations)?,
            reason: annotation::REASON.get(annotations)?.unwrap_or_default(),
            requested_drain: annotation::DESIRED_DRAIN.get(annotations)?,
            // Written by the drain controller; an unreadable value counts as no answer.
            last_applied_drain: annotation::LAST_APPLIED_DRAIN.get(annotations).ok().flatten(),
            rebooting: annotation::POST_CONFIG_ACTION.get(annotations)?
                == Some(PostConfigAction::Rebooting),
            topology: annotation::CONTROL_PLANE_TOPOLOGY.get(annotations)?,
            recover: annotation::RECOVER.get(annotations)?,
        })
    }

    /// Returns true if the daemon reported Done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state.as_ref().is_none_or(|state| *state == DaemonState::Done)
    }

    /// Returns true if the daemon reported a failure.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        matches!(self.state, Some(DaemonState::Degraded | DaemonState::Unreconcilable))
    }

    /// Returns true if the daemon made this request last.
    #[must_use]
    pub(super) fn has_requested(&self, request: &DrainRequest) -> bool {
        self.requested_drain.as_ref() == Some(request)
    }

    /// Returns true if the drain controller completed this request last.
    #[must_use]
    pub(super) fn has_completed(&self, request: &DrainRequest) -> bool {
        self.last_applied_drain.as_ref() == Some(request)
    }

    /// Returns true if the node is reported as Done with this config.
    #[must_use]
    pub(super) fn is_reported(&self, config: &RenderedName) -> bool {
        self.state == Some(DaemonState::Done)
            && self.current.as_ref() == Some(config)
            && self.reason.is_empty()
    }
}

/// Builds a request to the drain controller.
#[must_use]
pub(super) fn drain_request(verb: DrainVerb, config: &RenderedName) -> DrainRequest {
    DrainRequest { verb, config: config.as_str().to_owned() }
}
