//! The phase of a node and its start.

use std::fmt;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use mco_api::{
    MachineConfigPool,
    annotation::{self, DaemonState, DrainVerb},
    condition::{NodeCondition, PoolCondition},
};
use serde::Serialize;

use super::{Member, drain_record};
use crate::status::explain;

/// The phase of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Phase {
    /// The node runs the config of its pool.
    Done,
    /// The node needs another config and does not get it yet.
    Waiting,
    /// The controller selects the node next, or has selected it.
    Starting,
    /// The pods of the node are evicted.
    Draining,
    /// The daemon changes files, units and the operating system.
    Applying,
    /// The machine reboots.
    Rebooting,
    /// The controller makes the node schedulable again.
    Uncordoning,
    /// The update failed, or files were changed on the node.
    Degraded,
    /// The daemon has not reported, or the node belongs to no pool.
    Unknown,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Done => "Done",
            Self::Waiting => "Waiting",
            Self::Starting => "Starting",
            Self::Draining => "Draining",
            Self::Applying => "Applying",
            Self::Rebooting => "Rebooting",
            Self::Uncordoning => "Uncordoning",
            Self::Degraded => "Degraded",
            Self::Unknown => "Unknown",
        };
        f.pad(word)
    }
}

/// Returns the phase of a node that is to run `target`.
pub(super) fn phase(target: &str, member: &Member<'_>) -> Phase {
    let Member { view, node, .. } = member;
    let annotations = node.metadata.annotations.clone().unwrap_or_default();
    let requested = annotation::DESIRED_DRAIN.get(&annotations).ok().flatten();
    let applied = annotation::LAST_APPLIED_DRAIN.get(&annotations).ok().flatten();
    let open = requested.as_ref().filter(|_| requested != applied).map(|request| request.verb);
    let is_uncordoned = requested.as_ref().is_some_and(|request| {
        request.verb == DrainVerb::Uncordon && request.config == view.desired
    });
    if view.is_degraded() {
        return Phase::Degraded;
    }
    if view.current.is_empty() || target.is_empty() {
        return Phase::Unknown;
    }
    if view.is_updated(target) && !view.is_updating() {
        return Phase::Done;
    }
    if !view.is_updating() {
        return if member.hold.is_some() { Phase::Waiting } else { Phase::Starting };
    }
    match (open, &view.state) {
        (Some(DrainVerb::Drain), _) => Phase::Draining,
        (_, Some(DaemonState::Rebooting)) => Phase::Rebooting,
        (Some(DrainVerb::Uncordon), _) => Phase::Uncordoning,
        (None, Some(DaemonState::Working)) if is_uncordoned => Phase::Uncordoning,
        (None, Some(DaemonState::Working)) if is_down(node) || member.has_rebooted() => {
            Phase::Rebooting
        }
        (None, Some(DaemonState::Working)) => Phase::Applying,
        (None, _) if view.current == view.desired => Phase::Uncordoning,
        (None, _) => Phase::Starting,
    }
}

/// Returns true if the kubelet reports that the node is not ready, or has stopped reporting.
pub(super) fn is_down(node: &Node) -> bool {
    ready_condition(node).is_some_and(|(status, _)| status != "True")
}

fn ready_condition(node: &Node) -> Option<(&str, Option<&Time>)> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some((ready.status.as_str(), ready.last_transition_time.as_ref()))
}

/// Returns the start of the phase of a node, if it is known.
pub(super) fn since(pool: &MachineConfigPool, phase: Phase, member: &Member<'_>) -> Option<Time> {
    let report =
        |kind: &NodeCondition| member.reported(kind).map(|it| it.last_transition_time.clone());
    let of_pool = |kind: &PoolCondition| {
        let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
        explain::holding(conditions.unwrap_or_default(), kind)?.last_transition_time.clone()
    };
    let down = || {
        let not_ready = ready_condition(member.node).filter(|(status, _)| *status != "True");
        not_ready.and_then(|(_, time)| time.cloned())
    };
    match phase {
        Phase::Done => report(&NodeCondition::Updated),
        Phase::Waiting => {
            report(&NodeCondition::Waiting).or_else(|| of_pool(&PoolCondition::Updating))
        }
        Phase::Draining => drain_record(member.node)
            .map(|it| it.since)
            .or_else(|| report(&NodeCondition::Cordoned)),
        Phase::Applying => {
            report(&NodeCondition::Drained).or_else(|| report(&NodeCondition::UpdatePrepared))
        }
        Phase::Rebooting => down()
            .or_else(|| report(&NodeCondition::RebootedNode))
            .or_else(|| report(&NodeCondition::UpdateExecuted)),
        Phase::Uncordoning => report(&NodeCondition::RebootedNode),
        Phase::Degraded => {
            report(&NodeCondition::NodeDegraded).or_else(|| of_pool(&PoolCondition::NodeDegraded))
        }
        Phase::Starting => down(),
        Phase::Unknown => None,
    }
}
