//! The input of a simulation.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use mco_api::{
    MachineConfigPool, annotation::Recovery, machine_configuration::disruption::ClusterPolicies,
};
use mco_core::{
    machine::Machine,
    rollout::{PoolNodes, PoolView, RolloutPlan},
};

use crate::{Faults, Millis};

/// A cluster, the user's actions, and the injected faults.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Pools, each with its initial config.
    pub pools: Vec<MachineConfigPool>,
    /// Nodes, as the API server returns them.
    pub nodes: Vec<Node>,
    /// Configs, by name.
    pub configs: BTreeMap<String, Arc<Machine>>,
    /// Node disruption policies.
    pub policies: ClusterPolicies,
    /// Defects of configs, by name.
    pub flaws: BTreeMap<String, Flaw>,
    /// Pods, each on the node that it names.
    pub pods: Vec<Pod>,
    /// `PodDisruptionBudgets`.
    pub budgets: Vec<Budget>,
    /// Actions of the user, with their times.
    pub script: Vec<(Millis, UserAction)>,
    /// Probabilities of the faults.
    pub faults: Faults,
    /// Time after which no faults occur, and machines are restarted that are lost or run another
    /// system than their config asks for.
    pub faults_end: Millis,
    /// Latest end of the simulation.
    pub deadline: Millis,
    /// Durations of the simulated steps.
    pub times: StepTimes,
    /// Selection of nodes.
    pub chooser: Chooser,
    /// True if a node that does not reach its target is a violation, as it is if nothing blocks the
    /// node.
    pub requires_convergence: bool,
    /// Bug in the code itself; for tests of the invariants.
    pub bug: Option<Bug>,
    /// Action to take once, this long after the first node reaches this point of the handshake.
    pub interruption: Option<(HandshakePoint, Millis, UserAction)>,
}

/// A point of the handshake by which a daemon has its node cordoned, drained and uncordoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakePoint {
    /// The daemon has requested the drain.
    DrainRequested,
    /// The controller has cordoned the node.
    Cordoned,
    /// The controller has acknowledged the drain.
    Drained,
    /// The daemon writes the config.
    Applying,
    /// The machine reboots.
    Rebooting,
    /// The daemon has requested the uncordon.
    UncordonRequested,
    /// The controller has acknowledged the uncordon.
    Uncordoned,
    /// The daemon has reported Done.
    Done,
}

impl HandshakePoint {
    /// All points, in their order.
    pub const ALL: [Self; 8] = [
        Self::DrainRequested,
        Self::Cordoned,
        Self::Drained,
        Self::Applying,
        Self::Rebooting,
        Self::UncordonRequested,
        Self::Uncordoned,
        Self::Done,
    ];
}

/// The decision under test: the selection of nodes.
pub type Chooser = fn(&mut PoolNodes, &PoolView) -> RolloutPlan;

/// A defect of a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A node that boots the config is not ready, and its daemon rolls the config back after a while.
    NotReadyAtBoot,
    /// A node with the config is ready at first and becomes unready a minute later.
    NotReadyLater,
    /// The config cannot be applied, which is detected before the drain.
    FailsBeforeDrain,
    /// The config cannot be applied, which is detected after the drain.
    FailsAfterDrain,
}

/// An action of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAction {
    /// Sets another config for a pool.
    Target {
        /// Name of the pool.
        pool: String,
        /// Name of the config.
        config: String,
    },
    /// Pauses a pool.
    Pause(String),
    /// Unpauses a pool.
    Resume(String),
    /// Cordons a node, unless it is cordoned already.
    Cordon(usize),
    /// Uncordons a node that the user cordoned.
    Uncordon(usize),
    /// Restarts the controller.
    RestartController,
    /// Restarts the daemon of a node.
    RestartDaemon(usize),
    /// Asks the daemon of a node to force or abandon its update, or to forget its machine, which is
    /// managed again some time after the answer.
    Recover(usize, Recovery),
    /// Has a forgotten machine managed again.
    Manage(usize),
}

/// A bug in the code, to check that the invariants detect it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Daemons reboot without a drain.
    NoDrain,
    /// Daemons report success without requesting the uncordon.
    NoUncordon,
    /// The controller keeps its answer to an earlier uncordon when it cordons a node.
    OldAnswer,
    /// The controller removes every cordon, also the user's.
    AnyCordon,
}

/// A `PodDisruptionBudget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `namespace/name` of the budget.
    pub name: String,
    /// Selected pods, by their position in the list.
    pub pods: Vec<usize>,
    /// Number of pods that must stay.
    pub min_available: usize,
}

/// The durations of the simulated steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTimes {
    /// Delay before the controller reconciles a change.
    pub settle: Millis,
    /// Time to write a config to disk.
    pub apply: Millis,
    /// Time of a reboot.
    pub reboot: Millis,
    /// Time in which a pod terminates.
    pub leaving: Millis,
}

impl Default for StepTimes {
    fn default() -> Self {
        Self { settle: 50, apply: 20_000, reboot: 240_000, leaving: 30_000 }
    }
}
