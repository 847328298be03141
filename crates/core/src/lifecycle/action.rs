//! The actions that a decision asks for, and their outcomes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mco_api::{
    RenderedName,
    annotation::{DrainRequest, DrainVerb, DriftPolicy},
};

use super::{CheckResult, Health, NotRepaired, RolledBackConfig};
use crate::{drift::Drift, machine::Machine, plan::Step};

/// One action of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do nothing but wait.
    Wait,
    /// Join the cluster: nothing is left to decide without it.
    Connect,
    /// Prepare the machine, once after the start of the daemon.
    Prepare,
    /// Set the initial annotations of the node.
    SetInitialAnnotations(BTreeMap<String, String>),
    /// Adopt a machine that was not managed so far.
    Adopt,
    /// Clear the Rebooting annotation.
    ClearRebooting,
    /// Compare the disk with a config.
    Verify(RenderedName, Occasion),
    /// Repair drift from a config by these steps, which change these paths or units.
    Repair(RenderedName, Vec<Step>, Vec<String>),
    /// Fetch both configs of an update and prepare its confirmation.
    Begin(Update),
    /// Plan an update.
    Plan(Update),
    /// Request a drain or an uncordon from the drain controller.
    Request(DrainRequest),
    /// Record an update on the disk and execute it.
    Apply(Update),
    /// Execute a recorded update from this step on.
    Continue(usize),
    /// Execute a recorded update once more, because the machine booted its previous system.
    ApplyAgain,
    /// Restore everything that a recorded update changed.
    Undo,
    /// Forget a recorded update, so that the desired config is applied again in full.
    Abandon,
    /// Create the force file at the request of the administrator.
    Force,
    /// Remove the daemon's own files at the request of the administrator.
    Forget,
    /// Reboot the machine into this config.
    Reboot(String),
    /// Close a recorded update, which its reboot has completed.
    Close,
    /// Check the health of the machine after its reboot.
    CheckHealth,
    /// Record that the machine had this much time to prove healthy.
    RecordWait(Duration),
    /// Record that the machine proved healthy.
    Confirm,
    /// Roll back the config that the machine has rebooted into, for this reason.
    RollBack(String),
    /// Check a kubelet that was healthy before the update.
    CheckKubelet,
    /// Remove the force file of a node that is Done with this config.
    RemoveForceFile(RenderedName),
    /// Report the node as Done with this config.
    ReportDone(RenderedName, Completion),
    /// Report a failure.
    Fail(Cause),
}

/// An update of a node from one config to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Config of the node.
    pub from: RenderedName,
    /// Desired config.
    pub to: RenderedName,
    /// True if the force file asks to write everything again.
    pub force: bool,
}

/// The occasion of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The node has its desired config.
    Complete,
    /// An update is about to begin.
    Preflight,
}

/// The event that a node reports with Done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A config was applied.
    Update,
    /// Drift from the config that the node already had was repaired.
    DriftRepair,
}

/// The outcome of an action.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Outcome {
    /// The daemon has just started.
    #[default]
    Started,
    /// A wait has ended.
    Woken(Wake),
    /// The action was carried out.
    Done,
    /// The machine is prepared.
    Prepared,
    /// No pool with a rendered config selects the node.
    NoPool,
    /// The disk has the config.
    Verified(RenderedName, Occasion),
    /// The disk differs from the config.
    Drifted(Drifted),
    /// The drift was repaired.
    Repaired,
    /// The machine must reboot into the OS image of the config that it joins with.
    PivotDue(RenderedName),
    /// The configs of the update are known.
    Begun(Update),
    /// The update is planned.
    Planned(Planned),
    /// The update was executed, or ended in a recorded stage.
    Applied,
    /// The machine was told to reboot into this config.
    RebootStarted(String),
    /// The health of the machine after its reboot.
    Health(Health),
    /// The health of the kubelet.
    Kubelet(CheckResult),
    /// The node was reported as Done.
    Reported,
    /// The action failed.
    Failed(Severity),
}

/// Differences between the disk and a config.
#[derive(Clone, Debug, PartialEq)]
pub struct Drifted {
    /// Name of the config.
    pub config: RenderedName,
    /// The occasion of the verification.
    pub occasion: Occasion,
    /// The config.
    pub machine: Arc<Machine>,
    /// The differences, at least one.
    pub drifts: Vec<Drift>,
    /// Drift policy of the node's pool.
    pub policy: DriftPolicy,
}

/// The properties of a plan that decide about the next action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// True if the plan needs a drain.
    pub drain: bool,
    /// Drain timeout that the node's pool sets.
    pub drain_limit: Option<Duration>,
}

/// The cause that ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The node or the state of its certificates changed.
    Change,
    /// A watched path changed.
    Disk,
    /// The time of the wait is over.
    Deadline,
}

/// The severity of a failed action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The API server failed, so that nothing can be reported. The action is retried.
    Transient,
    /// The node is Degraded.
    Degraded,
    /// The node cannot take the config at all.
    Unreconcilable,
}

/// The cause of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The last action failed.
    Action(Severity),
    /// The controller has not set the desired config.
    NoDesiredConfig,
    /// The disk differs from the config.
    Drift {
        /// The config.
        config: RenderedName,
        /// The first difference.
        drift: Drift,
        /// The occasion on which the drift was detected.
        detected: DriftDetected,
        /// The reason why the drift was not repaired.
        left: Option<NotRepaired>,
    },
    /// The drain controller did not complete a request in time.
    DrainTimeout {
        /// The requested action.
        verb: DrainVerb,
        /// Time limit of the request.
        limit: Duration,
    },
    /// The kubelet was healthy before the update and is not since.
    KubeletUnhealthy(String),
    /// The config was rolled back after its reboot.
    RolledBack(RolledBackConfig),
    /// Certificates or pull secrets are not up to date.
    Certificates(String),
    /// The record of an unfinished update cannot be read, for this reason.
    UnreadableUpdate(String),
    /// The machine was told to reboot into this config and still runs.
    RebootOverdue {
        /// The config.
        config: String,
        /// Time limit of the reboot.
        limit: Duration,
    },
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
