//! What moving a node from one config to another takes: every step, and why.
//!
//! A plan is complete. Whoever carries it out chooses nothing: the steps are in order, contents come
//! from the target config, and whether to drain or reboot is settled, with the rule that settled it.

pub mod first_boot;
mod policy;
pub mod registries;
mod show;
mod steps;

use mco_api::machine_configuration::{StorageOverride, disruption::ClusterPolicies};
use serde::{Deserialize, Serialize};

pub use self::{
    policy::{Action, Rule, Verdict, default_policies, merge_policies, settle, verdicts},
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

/// What planning needs to know of the node and its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the node serves the cluster already.
    pub phase: Phase,
    /// Whether somebody asked to apply the config regardless.
    pub force: Force,
    /// Whether the kernel runs in FIPS mode, where it tells.
    pub kernel_fips: Option<bool>,
    /// Changes to storage that are let through.
    pub overrides: Vec<StorageOverride>,
    /// Images that the cluster built for the two configs.
    pub images: BuiltImages,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It serves the cluster.
    #[default]
    Serving,
    /// It is being set up and runs nothing yet.
    FirstBoot,
    /// It goes back to a config that it had, because it could not get the new one.
    WayBack,
}

/// Whether to trust that the disk is as the old config says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    /// Trust it: only what differs is written.
    #[default]
    No,
    /// Do not: everything is written, then the node reboots.
    Yes,
}

/// What moving a node from one config to another takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// What differs.
    pub diff: ConfigDiff,
    /// What each difference asks for, and by which rule.
    pub verdicts: Vec<Verdict>,
    /// What is done once the config is on the disk, each once, in order.
    pub actions: Vec<Action>,
    /// Whether pods must leave first.
    pub drain: Drain,
    /// Everything to do, in order.
    pub steps: Vec<Step>,
}

/// Whether pods must leave the node first, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Drain {
    /// They must.
    Needed(String),
    /// They may stay.
    NotNeeded(String),
}

/// Why a node will not be moved.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The change is one that a running node cannot take.
    #[error("can't reconcile config {from} with {to}: {}{obstacle}", clause(.from, .to, .obstacle))]
    Unreconcilable {
        /// The old config.
        from: String,
        /// The new config.
        to: String,
        /// What stands in the way.
        obstacle: Obstacle,
    },
    /// The list of registries cannot be compared.
    #[error(transparent)]
    Registries(#[from] Unparsable),
    /// The plan itself is broken, which is a mistake of ours: nothing is done.
    #[error("the plan from {from} to {to} is broken, which is a bug, and is not carried out")]
    Broken {
        /// The old config.
        from: String,
        /// The new config.
        to: String,
        /// In what way.
        source: Violation,
    },
}

fn clause(from: &str, to: &str, obstacle: &Obstacle) -> String {
    match obstacle {
        Obstacle::KernelFips => String::new(),
        Obstacle::Unreadable { .. } | Obstacle::Invalid { .. } | Obstacle::Section { .. } => {
            format!("configs {from}, {to} are not reconcilable: ")
        }
    }
}

/// Plans the way from one config to another.
pub fn node(
    from: &Machine,
    to: &Machine,
    policies: &ClusterPolicies,
    circumstances: &Circumstances,
) -> Result<NodePlan, Refusal> {
    if circumstances.phase == Phase::Serving {
        reconcile::check(from, to, &circumstances.overrides, circumstances.kernel_fips).map_err(
            |obstacle| Refusal::Unreconcilable {
                from: from.name.clone(),
                to: to.name.clone(),
                obstacle,
            },
        )?;
    }
    let diff = diff::between_images(from, to, &circumstances.images);
    let verdicts = match circumstances.phase {
        Phase::Serving => verdicts(&diff, policies, circumstances.force),
        // Nothing runs yet that would have to hear of the change, or nothing has heard of it.
        Phase::FirstBoot | Phase::WayBack => Vec::new(),
    };
    let actions = settle(&verdicts);
    let drain = drain(from, to, &actions)?;
    let steps = steps::steps(&diff, from, to, &actions, circumstances);
    let plan = NodePlan { diff, verdicts, actions, drain, steps };
    check::node(&plan, circumstances.phase).map_err(|source| Refusal::Broken {
        from: from.name.clone(),
        to: to.name.clone(),
        source,
    })?;
    Ok(plan)
}

impl NodePlan {
    /// Why a step is taken: the differences that ask for it, each with the rule that decided.
    ///
    /// Steps that every update has, such as recording the config, have no reason of their own.
    #[must_use]
    pub fn why(&self, step: &Step) -> Vec<&Verdict> {
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
        let asks = |verdict: &&Verdict| {
            action.as_ref().is_some_and(|action| verdict.actions.contains(action))
                || subject.as_ref().is_some_and(|subject| verdict.is_about(subject))
        };
        self.verdicts.iter().filter(asks).collect()
    }

    /// Whether the node reboots at the end.
    #[must_use]
    pub fn reboots(&self) -> bool {
        self.actions.contains(&Action::Reboot)
    }
}

/// Whether pods must leave a node before these actions, and why.
pub fn drain(from: &Machine, to: &Machine, actions: &[Action]) -> Result<Drain, Unparsable> {
    let because = |action: &Action| Drain::Needed(action.to_string());
    if let Some(action) = actions.iter().find(|a| matches!(a, Action::Reboot | Action::Drain)) {
        return Ok(because(action));
    }
    if !actions.contains(&Action::Special) {
        return Ok(Drain::NotNeeded("no action asks for it".to_owned()));
    }
    Ok(match registries::danger(from, to)? {
        Some(danger) => Drain::Needed(format!("{}: {danger}", registries::PATH)),
        None => {
            Drain::NotNeeded(format!("{}: changes made are safe to skip drain", registries::PATH))
        }
    })
}

#[cfg(test)]
mod tests;
