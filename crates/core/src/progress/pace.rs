//! The time left of a roll-out, from the times at which nodes of the same pool completed their updates.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{
    MachineConfigPool,
    condition::{NodeCondition, PoolCondition},
};
use serde::Serialize;

use super::{Member, NodeProgress, Phase};
use crate::status::explain;

/// The estimated time until all nodes of a pool run its config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeLeft {
    /// Time in seconds.
    pub seconds: u64,
    /// The roll-out whose pace the estimate follows.
    pub pace_of: PaceOf,
}

/// The roll-out whose pace is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PaceOf {
    /// The present one.
    ThisUpdate,
    /// The one before, because no node has completed the present one.
    LastUpdate,
}

/// Estimates the time left. Nothing is estimated while the pool is paused or a node does not continue by
/// itself, and without a node that completed an update.
pub(super) fn time_left(
    pool: &MachineConfigPool,
    members: &[Member<'_>],
    nodes: &[NodeProgress],
) -> Option<TimeLeft> {
    let remaining = nodes.iter().filter(|node| node.phase != Phase::Done).count();
    if remaining == 0 || pool.spec.paused || nodes.iter().any(|node| node.stuck) {
        return None;
    }
    let mut ends: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for member in members {
        if let Some(end) = completion(member) {
            ends.entry(&member.view.current).or_default().push(end);
        }
    }
    let target = pool.spec.configuration.rendered.name.as_str();
    let (total, count, pace_of) = if let Some(ends) = ends.remove(target) {
        (of_this_update(pool, &ends)?, ends.len(), PaceOf::ThisUpdate)
    } else {
        let last = ends.into_values().max_by_key(|ends| ends.iter().max().copied())?;
        (span(&last), last.len().saturating_sub(1), PaceOf::LastUpdate)
    };
    let (count, remaining) = (u64::try_from(count).ok()?, u64::try_from(remaining).ok()?);
    let seconds = u64::try_from(total).ok()?.checked_mul(remaining)?.checked_div(count)?;
    (seconds > 0).then_some(TimeLeft { seconds, pace_of })
}

/// Returns the time at which a node completed its last update.
fn completion(member: &Member<'_>) -> Option<i64> {
    member.reported(&NodeCondition::Updated).map(|it| it.last_transition_time.0.as_second())
}

/// Returns the seconds between the start of the present roll-out and its last completed node.
fn of_this_update(pool: &MachineConfigPool, ends: &[i64]) -> Option<i64> {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
    let updating = explain::holding(conditions.unwrap_or_default(), &PoolCondition::Updating)?;
    let Time(start) = updating.last_transition_time.as_ref()?;
    Some(ends.iter().max()? - start.as_second())
}

/// Returns the seconds between the first and the last completed node.
fn span(ends: &[i64]) -> i64 {
    let (first, last) = (ends.iter().min(), ends.iter().max());
    last.zip(first).map_or(0, |(last, first)| last - first)
}
