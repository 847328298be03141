//! The state of the pools in the words of the ClusterOperator.

use mco_api::{
    MachineConfigPool, MachineConfigPoolStatus,
    condition::{PoolCondition, reason},
    label,
    meta::{ConditionStatus, LooseCondition},
};

use super::is;
use crate::status::{explain, quote::quoted};

/// Step of the reference that reports pools.
const STEP: &str = "RequiredPools";

pub(super) fn name(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// Returns true if upgrades wait for the pool.
pub(super) fn is_required(pool: &MachineConfigPool) -> bool {
    let labels = pool.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(label::REQUIRED_FOR_UPGRADE))
}

/// Returns true if all nodes of the pool have its latest config.
pub(super) fn is_updated(pool: &MachineConfigPool) -> bool {
    let Some(status) = &pool.status else { return false };
    let config = &pool.spec.configuration.rendered.name;
    !config.is_empty()
        && *config == status.configuration.rendered.name
        && status.observed_generation >= pool.metadata.generation.unwrap_or_default()
        && is(pool, &PoolCondition::Updated)
}

/// Returns the failure that the pools cause: degraded pools, or, unless the cluster is at its version,
/// a paused pool that upgrades wait for.
pub(super) fn failure(pools: &[&MachineConfigPool], known: bool) -> Option<(&'static str, String)> {
    let degraded = pools.iter().filter(|pool| is(pool, &PoolCondition::Degraded));
    let degraded: Vec<String> = degraded.map(|pool| not_ready(pool)).collect();
    if !degraded.is_empty() {
        return Some((STEP, degraded.join("; ")));
    }
    if known {
        return None;
    }
    let mut waiting = pools.iter().filter(|pool| is_required(pool) && !is_updated(pool));
    let paused = waiting.find(|pool| pool.spec.paused)?;
    let name = name(paused);
    let text = if is(paused, &PoolCondition::Updated) {
        format!(
            "the required MachineConfigPool {name} was paused with no pending updates; no further \
             syncing will occur until it is unpaused"
        )
    } else {
        format!("required MachineConfigPool {name} is paused and cannot sync until it is unpaused")
    };
    Some((STEP, text))
}

/// Returns the state of a degraded pool, with the cause of each failure and its remedy.
fn not_ready(pool: &MachineConfigPool) -> String {
    let status = pool.status.clone().unwrap_or_default();
    let message = |kind: &PoolCondition| {
        let found = holding(&status, kind).map(|found| found.message.trim());
        found.filter(|text| !text.is_empty())
    };
    // Compat: Degraded has no message for a pool that cannot be rendered, and the reference then
    // prints an empty reason.
    let nodes = message(&PoolCondition::Degraded);
    let render = message(&PoolCondition::RenderDegraded);
    let render = render.filter(|text| nodes.is_none_or(|nodes| !nodes.contains(text)));
    let reasons: Vec<&str> = nodes.into_iter().chain(render).collect();
    let reason = (!reasons.is_empty()).then(|| format!(", reason: {}", reasons.join("; ")));
    let remedies = explain::remedies(&status.conditions).join("; ");
    let remedy = (!remedies.is_empty()).then(|| format!("; to fix it: {remedies}"));
    format!(
        "MachineConfigPool {} is not ready, retrying. Status: (pool degraded: true total: {}, ready \
         {}, updated: {}, unavailable: {}{}){}",
        name(pool),
        status.machine_count,
        status.ready_machine_count,
        status.updated_machine_count,
        status.unavailable_machine_count,
        reason.unwrap_or_default(),
        remedy.unwrap_or_default(),
    )
}

/// Returns the state of the first pool that the version waits for.
pub(super) fn waiting(pools: &[&MachineConfigPool]) -> Option<String> {
    let pool = pools.iter().find(|pool| is_required(pool) && !is_updated(pool))?;
    let status = pool.status.clone().unwrap_or_default();
    Some(format!(
        "required MachineConfigPool {} is not ready, retrying. Status: (total: {}, ready {}, updated: \
         {}, unavailable: {}, degraded: {})",
        name(pool),
        status.machine_count,
        status.ready_machine_count,
        status.updated_machine_count,
        status.unavailable_machine_count,
        status.degraded_machine_count,
    ))
}

/// Returns the pools with nodes that are not up to date, and the reason word for them; `None` if all
/// nodes are up to date.
///
/// A node that is not ready is no update: only nodes without the pool's config count.
pub(super) fn rollouts(pools: &[&MachineConfigPool]) -> Option<(&'static str, String)> {
    let pending: Vec<_> = pools.iter().copied().filter(|pool| has_update(pool)).collect();
    if pending.is_empty() {
        return None;
    }
    let reason = if pending.iter().all(|pool| pool.spec.paused) {
        reason::POOL_PAUSED
    } else {
        reason::POOL_UPDATING
    };
    let texts: Vec<String> = pending.into_iter().map(rollout).collect();
    Some((reason, texts.join("; ")))
}

/// Returns true if the pool has an update that some node does not have yet.
fn has_update(pool: &MachineConfigPool) -> bool {
    let Some(status) = &pool.status else { return false };
    let config = &pool.spec.configuration.rendered.name;
    let is_behind = status.updated_machine_count < status.machine_count;
    !config.is_empty() && (*config != status.configuration.rendered.name || is_behind)
}

fn rollout(pool: &MachineConfigPool) -> String {
    let status = pool.status.clone().unwrap_or_default();
    let (name, config) = (name(pool), &pool.spec.configuration.rendered.name);
    let counts = format!("{} of {} nodes", status.updated_machine_count, status.machine_count);
    if pool.spec.paused {
        return format!(
            "MachineConfigPool {name} is paused, and {counts} have {config}; to continue, run: \
             kubectl patch machineconfigpool {name} --type merge --patch '{{\"spec\":{{\"paused\":\
             false}}}}'"
        );
    }
    format!(
        "MachineConfigPool {name} is updating to {config}: {counts} updated, {} ready, {} \
         unavailable, {} degraded",
        status.ready_machine_count, status.unavailable_machine_count, status.degraded_machine_count,
    )
}

/// Returns the summary of a pool. Compat: the texts are the reference's.
pub(super) fn summary(pool: &MachineConfigPool) -> String {
    let status = pool.status.clone().unwrap_or_default();
    let fails = |kind: &PoolCondition, what: &str| {
        let found = holding(&status, kind)?;
        let (reason, message) = (quoted(&found.reason), quoted(&found.message));
        Some(format!("pool is degraded because {what} with {reason}: {message}"))
    };
    let progress = || {
        if is(pool, &PoolCondition::Updated) {
            let config = &status.configuration.rendered.name;
            let count = status.machine_count;
            return Some(format!("all {count} nodes are at latest configuration {config}"));
        }
        is(pool, &PoolCondition::Updating).then(|| {
            format!(
                "{} (ready {}) out of {} nodes are updating to latest configuration {}",
                status.updated_machine_count,
                status.ready_machine_count,
                status.machine_count,
                pool.spec.configuration.rendered.name,
            )
        })
    };
    fails(&PoolCondition::RenderDegraded, "rendering fails")
        .or_else(|| fails(&PoolCondition::NodeDegraded, "nodes fail"))
        .or_else(progress)
        .or_else(|| fails(&PoolCondition::PinnedImageSetsDegraded, "pinned image sets failed"))
        .unwrap_or_else(|| "<unknown>".to_owned())
}

/// Returns the condition of that kind if it is True.
fn holding<'s>(
    status: &'s MachineConfigPoolStatus,
    kind: &PoolCondition,
) -> Option<&'s LooseCondition> {
    let mut conditions = status.conditions.iter();
    conditions
        .find(|found| found.kind == kind.as_str() && found.status == ConditionStatus::True.as_str())
}
