//! Planning of a node update: all steps from one config to another, with their reasons.
//!
//! A plan is complete. The daemon that executes it decides nothing: the steps are in order,
//! contents come from the target config, and drain and reboot are decided, with the rule that
//! applied.

pub mod first_boot;
mod policy;
pub mod registries;
mod show;
mod steps;

use mco_api::machine_configuration::{StorageOverride, disruption::ClusterPolicies};
use serde::{Deserialize, Serialize};

pub use self::{
    policy::{
        Action, PolicyDecision, Rule, combine_actions, default_policies, merge_policies,
        policy_decisions,
    },
    registries::Unparsable,
    steps::Step,
};
use crate::{
    check::{self, Violation},
    diff::{
        self, BuiltImages, ConfigDiff,
        reconcile::{self, Obstacle},
    },
    machine::Machine,
};

/// Facts about the node and its cluster that planning needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Stage of the node's life.
    pub mode: ApplyMode,
    /// Set if the force file requests to apply the config regardless of the disk.
    pub force: Force,
    /// FIPS mode of the kernel, if known.
    pub kernel_fips: Option<bool>,
    /// Storage sections that may change.
    pub overrides: Vec<StorageOverride>,
    /// OS images built for the two configs.
    pub images: BuiltImages,
}

/// The stage of a node's life in which a plan is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyMode {
    /// The node serves the cluster.
    #[default]
    Serving,
    /// The machine is being set up and runs no pods yet.
    FirstBoot,
    /// The node rolls back to a config that it had, because the update failed.
    Rollback,
}

/// The trust in the state of the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// The disk matches the old config: only differences are written.
    #[default]
    No,
    /// The disk may differ: everything is written, then the node reboots.
    Yes,
}

/// A plan that moves a node from one config to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// Differences between the configs.
    pub diff: ConfigDiff,
    /// Actions that each difference requires, with the rule that applied.
    #[serde(rename = "verdicts")]
    pub decisions: Vec<PolicyDecision>,
    /// Actions to take once the config is on disk, each once, in order.
    pub actions: Vec<Action>,
    /// Drain decision.
    pub drain: Drain,
    /// All steps, in order.
    pub steps: Vec<Step>,
}

/// The drain decision, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Drain {
    /// The node must be drained first.
    Needed(String),
    /// The pods may stay.
    NotNeeded(String),
}

/// The reason why a node is not updated.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The change is one that a running node cannot apply.
    #[error("can't reconcile config {from} with {to}: {}{obstacle}", clause(.from, .to, .obstacle))]
    Unreconcilable {
        /// Name of the old config.
        from: String,
        /// Name of the new config.
        to: String,
        /// The difference that cannot be applied.
        obstacle: Obstacle,
    },
    /// The registries file cannot be compared.
    #[error(transparent)]
    Registries(#[from] Unparsable),
    /// The plan violates an invariant, which is a bug in `mco`: nothing is executed.
    #[error("the plan from {from} to {to} is invalid, which is a bug in mco, and is not executed")]
    Broken {
        /// Name of the old config.
        from: String,
        /// Name of the new config.
        to: String,
        /// The violated invariant.
        source: Violation,
    },
}

fn clause(from: &str, to: &str, obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::KernelFips | Obstacle::Path { .. } => String::new(),
        Obstacle::Unreadable { .. } | Obstacle::Invalid { .. } | Obstacle::Section { .. } => {
            format!("configs {from}, {to} are not reconcilable: ")
        }
    }
}

/// Plans the update from one config to another.
pub fn node(
    from: &Machine,
    to: &Machine,
    policies: &ClusterPolicies,
    circumstances: &Circumstances,
) -> Result<NodePlan, Refusal> {
    if circumstances.mode == ApplyMode::Serving {
        reconcile::check(from, to, &circumstances.overrides, circumstances.kernel_fips).map_err(
            |obstacle| Refusal::Unreconcilable {
                from: from.name.clone(),
                to: to.name.clone(),
                obstacle,
            },
        )?;
    }
    let diff = diff::between_images(from, to, &circumstances.images);
    let verdicts = match circumstances.mode {
        ApplyMode::Serving => policy_decisions(&diff, policies, circumstances.force),
        // On first boot no service runs yet that needs a restart; on a rollback none has been told
        // of the change.
        ApplyMode::FirstBoot | ApplyMode::Rollback => Vec::new(),
    };
    let actions = combine_actions(&verdicts);
    let drain = drain(from, to, &actions)?;
    let steps = steps::steps(&diff, from, to, &actions, circumstances);
    let plan = NodePlan { diff, decisions: verdicts, actions, drain, steps };
    check::node(&plan, circumstances.mode).map_err(|source| Refusal::Broken {
        from: from.name.clone(),
        to: to.name.clone(),
        source,
    })?;
    Ok(plan)
}

impl NodePlan {
    /// Returns the differences that require a step, each with the rule that applied.
    ///
    /// Steps that every update has, such as recording the config, have no reason of their own.
    #[must_use]
    pub fn why(&self, step: &Step) -> Vec<&PolicyDecision> {
        let action = match step {
            Step::Reboot => Some(Action::Reboot),
            Step::ReloadSystemd => Some(Action::DaemonReload),
            Step::ReloadService(service) if service == steps::ENGINE => Some(Action::Special),
            Step::ReloadService(service) => Some(Action::Reload(service.clone())),
            Step::RestartService(service) => Some(Action::Restart(service.clone())),
            Step::WriteFile(_)
            | Step::RemoveFile(_)
            | Step::WriteDropin { .. }
            | Step::RemoveDropin { .. }
            | Step::WriteUnit(_)
            | Step::MaskUnit(_)
            | Step::UnmaskUnit(_)
            | Step::RemoveUnit(_)
            | Step::EnableUnit(_)
            | Step::DisableUnit(_)
            | Step::PresetUnit(_)
            | Step::ProtectKubeconfig
            | Step::WriteKeys
            | Step::SetPassword
            | Step::StageOs(_)
            | Step::StageKernelArguments { .. }
            | Step::StageKernel(_)
            | Step::StageExtensions { .. }
            | Step::RecordConfig
            | Step::RemoveForceFile => None,
        };
        let subject = step.subject();
        let requires = |decision: &&PolicyDecision| {
            action.as_ref().is_some_and(|action| decision.actions.contains(action))
                || subject.as_ref().is_some_and(|subject| decision.is_about(subject))
        };
        self.decisions.iter().filter(requires).collect()
    }

    /// Returns true if these policies still require the actions of the plan.
    #[must_use]
    pub fn conforms_to(&self, policies: &ClusterPolicies) -> bool {
        combine_actions(&policy_decisions(&self.diff, policies, Force::No)) == self.actions
    }

    /// Returns true if the plan ends with a reboot.
    #[must_use]
    pub fn reboots(&self) -> bool {
        self.actions.contains(&Action::Reboot)
    }
}

/// Decides if a node must be drained before these actions.
pub fn drain(from: &Machine, to: &Machine, actions: &[Action]) -> Result<Drain, Unparsable> {
    let because = |action: &Action| Drain::Needed(action.to_string());
    if let Some(action) = actions.iter().find(|a| matches!(a, Action::Reboot | Action::Drain)) {
        return Ok(because(action));
    }
    if !actions.contains(&Action::Special) {
        return Ok(Drain::NotNeeded("no action asks for it".to_owned()));
    }
    Ok(match registries::unsafe_change(from, to)? {
        Some(danger) => Drain::Needed(format!("{}: {danger}", registries::PATH)),
        None => {
            Drain::NotNeeded(format!("{}: changes made are safe to skip drain", registries::PATH))
        }
    })
}

#[cfg(test)]
mod tests;
