//! What a simulation starts from.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Node, Pod};
use mco_api::{MachineConfigPool, machine_configuration::disruption::ClusterPolicies};
use mco_core::{
    machine::Machine,
    rollout::{Fleet, PoolView, RolloutPlan},
};

use crate::{Faults, Millis};

/// A cluster, what is done to it, and what goes wrong.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What chance follows from.
    pub seed: u64,
    /// The pools, each with the config it starts with.
    pub pools: Vec<MachineConfigPool>,
    /// The nodes, as the API server shows them.
    pub nodes: Vec<Node>,
    /// The configs, by name.
    pub configs: BTreeMap<String, Arc<Machine>>,
    /// What a change asks of a node.
    pub policies: ClusterPolicies,
    /// What is wrong with some configs.
    pub flaws: BTreeMap<String, Flaw>,
    /// The pods, each on the node that it names.
    pub pods: Vec<Pod>,
    /// How many pods of a group must stay.
    pub budgets: Vec<Budget>,
    /// What people do, and when.
    pub script: Vec<(Millis, Action)>,
    /// What goes wrong, and how often.
    pub faults: Faults,
    /// When nothing goes wrong any more and lost machines are seen to.
    pub calm: Millis,
    /// When the simulation ends at the latest.
    pub deadline: Millis,
    /// How long things take.
    pub pace: Pace,
    /// Who chooses nodes.
    pub chooser: Chooser,
    /// Whether it is a fault if a node does not get there, as it is where nothing stands in its way.
    pub judges: bool,
    /// What is wrong with the code itself; for tests of the rules.
    pub bug: Option<Bug>,
}

/// The decision that is under test: whom to tell next.
pub type Chooser = fn(&mut Fleet, &PoolView) -> RolloutPlan;

/// What is wrong with a config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A node that boots it is not ready, and its daemon does not get through.
    NotReadyAtBoot,
    /// A node that has it is ready at first and not any more a minute later.
    NotReadyLater,
    /// It cannot be applied, which shows before the drain.
    FailsBeforeDrain,
    /// It cannot be applied, which shows after the drain.
    FailsAfterDrain,
}

/// What a person does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Gives a pool another config.
    Target {
        /// The pool.
        pool: String,
        /// The config.
        config: String,
    },
    /// Puts a pool on hold.
    Pause(String),
    /// Lets a pool go on.
    Resume(String),
    /// Closes a node to pods, unless it is closed.
    Cordon(usize),
    /// Opens a node that was closed so.
    Uncordon(usize),
}

/// Something wrong with the code, to see whether the rules catch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Daemons reboot without a drain.
    NoDrain,
    /// Daemons report success without asking for the uncordon.
    NoUncordon,
}

/// Pods that must not all go at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// `namespace/name` of the budget.
    pub name: String,
    /// The pods, by their place in the list.
    pub pods: Vec<usize>,
    /// How many must stay.
    pub min_available: usize,
}

/// How long things take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Before the controller looks at a change.
    pub settle: Millis,
    /// Writing a config to a disk.
    pub apply: Millis,
    /// A reboot.
    pub reboot: Millis,
    /// A pod's way out.
    pub leaving: Millis,
    /// Before a daemon tries again what failed.
    pub retry: Millis,
}

impl Default for Pace {
    fn default() -> Self {
        Self { settle: 50, apply: 20_000, reboot: 240_000, leaving: 30_000, retry: 60_000 }
    }
}
