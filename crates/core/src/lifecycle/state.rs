//! The state of a node's life: its phase, and what a daemon remembers while it runs.

use std::{fmt, time::Duration};

use mco_api::{RenderedName, annotation::DrainRequest};

use super::{CheckResult, Health, Planned, RepairHistory, Update};

/// The phase of a node's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The daemon has just started.
    #[default]
    Starting,
    /// The machine has rebooted into a config and has to prove healthy.
    Confirming,
    /// Everything that an update changed is being restored.
    RollingBack,
    /// The node gets its first annotations.
    Joining,
    /// The disk is compared with the config, and drift repaired.
    Verifying,
    /// An update is checked and planned.
    Planning,
    /// The drain controller drains the node.
    Draining,
    /// The steps of an update are executed.
    Applying,
    /// The machine reboots.
    Rebooting,
    /// The kubelet has to be healthy after the update.
    AwaitingKubelet,
    /// The drain controller uncordons the node.
    Uncordoning,
    /// The node has its desired config.
    Done,
    /// An action failed and is retried.
    Failed,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 13] = [
        Self::Starting,
        Self::Confirming,
        Self::RollingBack,
        Self::Joining,
        Self::Verifying,
        Self::Planning,
        Self::Draining,
        Self::Applying,
        Self::Rebooting,
        Self::AwaitingKubelet,
        Self::Uncordoning,
        Self::Done,
        Self::Failed,
    ];

    /// Returns the name of the phase.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "Starting",
            Self::Confirming => "Confirming",
            Self::RollingBack => "RollingBack",
            Self::Joining => "Joining",
            Self::Verifying => "Verifying",
            Self::Planning => "Planning",
            Self::Draining => "Draining",
            Self::Applying => "Applying",
            Self::Rebooting => "Rebooting",
            Self::AwaitingKubelet => "AwaitingKubelet",
            Self::Uncordoning => "Uncordoning",
            Self::Done => "Done",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The state of a node's life. Times count from any fixed time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Phase of the node.
    pub phase: Phase,
    /// Time at which the phase began.
    pub since: Duration,
    /// Recent drift repairs.
    pub repairs: RepairHistory,
    /// Number of failures in a row.
    pub(super) failures: u32,
    /// True once the machine is prepared.
    pub(super) is_prepared: bool,
    /// True once the node was Done since the daemon started.
    pub(super) has_completed: bool,
    /// Config that the disk was verified against; none after a change on the disk.
    pub(super) verified: Option<RenderedName>,
    /// True if drift was repaired and the disk has to be verified again.
    pub(super) is_repaired: bool,
    /// Update that is being prepared.
    pub(super) prepared: Option<PreparedUpdate>,
    /// Pending request to the drain controller, and its start.
    pub(super) request: Option<(DrainRequest, Duration)>,
    /// Last answer of the kubelet.
    pub(super) kubelet: Option<CheckResult>,
    /// Time since when the kubelet is unhealthy after an update.
    pub(super) kubelet_down_since: Option<Duration>,
    /// Last health of the machine after its reboot.
    pub(super) health: Option<Health>,
    /// Start of the confirmation, and time that the machine had before.
    pub(super) confirming: Option<(Duration, Duration)>,
    /// Config that the machine was told to reboot into, and the time of it.
    pub(super) reboot: Option<(String, Duration)>,
}

/// An update whose configs are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PreparedUpdate {
    pub(super) update: Update,
    /// True if the disk was verified for the update.
    pub(super) is_preflighted: bool,
    /// Plan of the update.
    pub(super) planned: Option<Planned>,
}

impl PreparedUpdate {
    /// Returns an update that is neither verified nor planned.
    pub(super) fn of(update: &Update) -> Self {
        Self { update: update.clone(), is_preflighted: false, planned: None }
    }
}

impl State {
    /// Returns the number of failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns true once the node was Done since the daemon started.
    #[must_use]
    pub fn has_completed(&self) -> bool {
        self.has_completed
    }

    /// Returns true if nothing was attempted since the daemon started.
    #[must_use]
    pub fn is_first_attempt(&self) -> bool {
        !self.has_completed && self.failures == 0 && self.request.is_none()
    }

    /// Returns the condition that the node waits for, and since when.
    #[must_use]
    pub fn waiting(&self) -> Option<(String, Duration)> {
        match self.phase {
            Phase::Draining | Phase::Uncordoning => {
                self.request.as_ref().map(|(request, since)| (request.to_string(), *since))
            }
            Phase::AwaitingKubelet => {
                self.kubelet_down_since.map(|since| ("the kubelet".to_owned(), since))
            }
            Phase::Rebooting => {
                let since = self.reboot.as_ref().map_or(self.since, |(_, since)| *since);
                Some(("the reboot".to_owned(), since))
            }
            Phase::Confirming => Some(("the machine to prove healthy".to_owned(), self.since)),
            Phase::Joining => Some(("a pool with a rendered config".to_owned(), self.since)),
            Phase::Starting
            | Phase::RollingBack
            | Phase::Verifying
            | Phase::Planning
            | Phase::Applying
            | Phase::Done
            | Phase::Failed => None,
        }
    }
}

/// Timeouts of a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For the drain controller to drain the node, unless its pool sets another.
    pub drain: Duration,
    /// For the drain controller to uncordon the node.
    pub uncordon: Duration,
    /// For a kubelet that was healthy before an update to be healthy after the update.
    pub kubelet: Duration,
    /// For the machine to go down after it was told to reboot.
    pub reboot: Duration,
    /// For a standby to wait beyond the time to prove healthy, before it starts anew.
    pub standby: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            drain: Duration::from_hours(1),
            uncordon: Duration::from_mins(10),
            kubelet: Duration::from_mins(2),
            reboot: Duration::from_mins(10),
            standby: Duration::from_mins(30),
        }
    }
}
