//! Invariants of every node plan and rollout plan.
//!
//! Planning ends with these checks, so that a mistake in a rule leads to a refusal, and never to a
//! machine that is half changed or rebooted with its pods running.

use std::collections::BTreeSet;

use crate::{
    diff::Change,
    plan::{Action, ApplyMode, Drain, NodePlan, Step},
    rollout::{self, Cordon, PoolNodes, PoolView, RolloutPlan},
};

/// An invariant that a plan violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The node would reboot without a drain.
    #[error("the plan reboots without a drain")]
    RebootWithoutDrain,
    /// The actions include a reboot and the steps do not, or the reverse.
    #[error("the plan's actions and steps disagree about a reboot")]
    RebootDisagrees,
    /// A step follows the reboot.
    #[error("the plan goes on after its reboot")]
    AfterReboot,
    /// The config is recorded never, or several times.
    #[error("the plan records the config {0} times")]
    Recorded(usize),
    /// A running service would be told of the change before the change is on disk.
    #[error("the plan does {0} before the config is recorded")]
    TooEarly(String),
    /// A step would change the disk after the config is recorded.
    #[error("the plan does {0} after the config is recorded")]
    TooLate(String),
    /// An action occurs twice.
    #[error("the plan does {0} twice")]
    Twice(String),
    /// A changed unit has no step.
    #[error("the plan has no step for {0}")]
    MissingStep(String),
    /// A difference has no policy decision.
    #[error("the plan lacks a policy decision for one of {0}")]
    NoRule(String),
    /// A node of a paused or otherwise held pool would start.
    #[error("nodes of pool {0} would start while the pool is on hold")]
    OnHold(String),
    /// A node would start that is not in the pool or has been selected already.
    #[error("node {0} would start twice, or is not in the pool")]
    InvalidStart(String),
    /// A node would start that the user cordoned.
    #[error("node {0} would start although the user cordoned it")]
    UserCordon(String),
    /// More nodes would be updating or unavailable than `maxUnavailable` allows.
    #[error("more than {limit} nodes of pool {pool} would be unavailable")]
    TooMany {
        /// Name of the pool.
        pool: String,
        /// Value of `maxUnavailable`.
        limit: usize,
    },
    /// A node is among the starts and among the holds.
    #[error("node {0} would both start and wait")]
    StartsAndWaits(String),
}

/// Checks the plan of one node.
pub fn node(plan: &NodePlan, phase: ApplyMode) -> Result<(), Violation> {
    reboot(plan)?;
    order(plan)?;
    let mut seen: Vec<&Action> = Vec::new();
    for action in &plan.actions {
        if seen.contains(&action) || (*action == Action::None && plan.actions.len() > 1) {
            return Err(Violation::Twice(action.to_string()));
        }
        seen.push(action);
    }
    complete(plan)?;
    if phase == ApplyMode::Serving { decided(plan) } else { Ok(()) }
}

fn reboot(plan: &NodePlan) -> Result<(), Violation> {
    let at = plan.steps.iter().position(|step| *step == Step::Reboot);
    if at.is_some() != plan.reboots() {
        return Err(Violation::RebootDisagrees);
    }
    if at.is_some_and(|at| at + 1 != plan.steps.len()) {
        return Err(Violation::AfterReboot);
    }
    if plan.reboots() && matches!(plan.drain, Drain::NotNeeded(_)) {
        return Err(Violation::RebootWithoutDrain);
    }
    Ok(())
}

fn order(plan: &NodePlan) -> Result<(), Violation> {
    let recorded: Vec<usize> = plan
        .steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| (*step == Step::RecordConfig).then_some(at))
        .collect();
    let [record] = recorded.as_slice() else { return Err(Violation::Recorded(recorded.len())) };
    for (at, step) in plan.steps.iter().enumerate() {
        match (is_activation(step), at.cmp(record)) {
            (true, std::cmp::Ordering::Less) => return Err(Violation::TooEarly(step.to_string())),
            (false, std::cmp::Ordering::Greater) if *step != Step::RemoveForceFile => {
                return Err(Violation::TooLate(step.to_string()));
            }
            (true | false, _) => {}
        }
    }
    Ok(())
}

/// Returns true if a step only makes running services use the change, and changes nothing on disk.
fn is_activation(step: &Step) -> bool {
    matches!(
        step,
        Step::ReloadSystemd | Step::ReloadService(_) | Step::RestartService(_) | Step::Reboot
    )
}

/// Checks that every changed unit has a step. Files that follow the cluster have none, on purpose.
fn complete(plan: &NodePlan) -> Result<(), Violation> {
    let touched: BTreeSet<&str> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::WriteUnit(unit)
            | Step::MaskUnit(unit)
            | Step::UnmaskUnit(unit)
            | Step::RemoveUnit(unit)
            | Step::EnableUnit(unit)
            | Step::DisableUnit(unit)
            | Step::PresetUnit(unit)
            | Step::WriteDropin { unit, .. }
            | Step::RemoveDropin { unit, .. } => Some(unit.as_str()),
            Step::WriteFile(_)
            | Step::RemoveFile(_)
            | Step::ProtectKubeconfig
            | Step::WriteKeys
            | Step::SetPassword
            | Step::StageOs(_)
            | Step::StageKernelArguments { .. }
            | Step::StageKernel(_)
            | Step::StageExtensions { .. }
            | Step::RecordConfig
            | Step::RemoveForceFile
            | Step::ReloadSystemd
            | Step::ReloadService(_)
            | Step::RestartService(_)
            | Step::Reboot => None,
        })
        .collect();
    let units = plan.diff.units.iter().filter(|unit| unit.change != Change::Respelled);
    for unit in units {
        if !touched.contains(unit.name.as_str()) {
            return Err(Violation::MissingStep(format!("unit {}", unit.name)));
        }
    }
    Ok(())
}

/// Checks that every difference has a policy decision.
fn decided(plan: &NodePlan) -> Result<(), Violation> {
    let parts = plan.diff.files.len()
        + plan.diff.units.len()
        + plan.diff.system().len()
        + usize::from(plan.diff.users.is_some());
    if plan.decisions.len() < parts {
        return Err(Violation::NoRule(format!("{parts} differences")));
    }
    Ok(())
}

/// Checks the nodes selected to start an update.
///
/// The limits are counted again here, from the nodes and not from the counts in the plan.
pub fn rollout(
    plan: &RolloutPlan,
    pool: &PoolView,
    pool_nodes: &PoolNodes,
) -> Result<(), Violation> {
    if pool.phase != rollout::PoolPhase::Active && !plan.starts.is_empty() {
        return Err(Violation::OnHold(pool.name.clone()));
    }
    let repairs: BTreeSet<&str> = plan.repairs.iter().map(String::as_str).collect();
    let held: BTreeSet<&str> = plan.holds.iter().map(|(node, _)| node.as_str()).collect();
    let mut seen = BTreeSet::new();
    let (mut starting, mut available) = (0, 0);
    for node in &plan.starts {
        let name = node.as_str();
        let view = pool_nodes.node(name).filter(|_| seen.insert(name));
        let view = view.ok_or_else(|| Violation::InvalidStart(node.clone()))?;
        if held.contains(name) {
            return Err(Violation::StartsAndWaits(node.clone()));
        }
        if view.cordon == Cordon::User {
            return Err(Violation::UserCordon(node.clone()));
        }
        starting += usize::from(!pool_nodes.is_updating(name));
        available += usize::from(!repairs.contains(name));
    }
    let limit = usize::try_from(pool.max_unavailable).unwrap_or(0);
    let counts = pool_nodes.counts();
    let too_many = (starting > 0 && counts.updating.saturating_add(starting) > limit)
        || (available > 0 && counts.slots.saturating_add(available) > limit);
    if too_many { Err(Violation::TooMany { pool: pool.name.clone(), limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
