//! Explanations of degraded and waiting objects of a pool: object, cause, start and remedy.
//!
//! Conditions keep the reference's texts, because programs match on them; these sentences add the
//! rest.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{
    MachineConfigPool,
    annotation::DaemonState,
    condition::PoolCondition,
    meta::{ConditionStatus, LooseCondition},
};
use serde::Serialize;

use crate::rollout::{Hold, NodeView};

/// A degraded or waiting object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The object, such as `node worker-1` or `pool worker`.
    pub object: String,
    /// State of the object.
    pub state: State,
    /// Cause of the state.
    pub cause: String,
    /// Start of the state, if known.
    pub since: Option<Time>,
    /// Next step for the administrator.
    pub next: String,
}

/// The state of an explained object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The object failed and does not recover by itself.
    Degraded,
    /// The object continues once something else happens.
    Waiting,
    /// The object works without a part of its settings.
    Restricted,
}

impl Explanation {
    fn sentence(&self, subject: &str, next: &str) -> String {
        let state = match self.state {
            State::Degraded => "degraded",
            State::Waiting => "waiting",
            State::Restricted => "restricted",
        };
        let since = match &self.since {
            Some(Time(since)) => format!(" since {since}"),
            None => String::new(),
        };
        format!("{subject} {state}{since}: {}; {next}", self.cause)
    }

    /// Returns true if both explanations differ only in the object.
    fn is_like(&self, other: &Self) -> bool {
        let Self { object: _, state, cause, since, next } = self;
        (state, cause, since, next) == (&other.state, &other.cause, &other.since, &other.next)
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence(&format!("{} is", self.object), &self.next))
    }
}

/// Maximum number of nodes named in one sentence.
const NAMED: usize = 3;

/// Returns one sentence per explanation; nodes with equal explanations share one.
#[must_use]
pub fn summary(explanations: &[Explanation]) -> Vec<String> {
    let groups = explanations.chunk_by(Explanation::is_like);
    let sentence = |group: &[Explanation]| {
        let [first, _, ..] = group else {
            return group.iter().map(ToString::to_string).collect();
        };
        let names = group.iter().take(NAMED).map(|one| one.object.trim_start_matches("node "));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = match group.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        first.sentence(&format!("nodes {names}{more} are"), &first.next)
    };
    groups.map(sentence).collect()
}

/// Explains everything that is degraded or waiting in a pool: the pool itself first, then node by
/// node.
///
/// `holds` are the reasons of the nodes that the rollout does not start.
#[must_use]
pub fn pool(
    pool: &MachineConfigPool,
    nodes: &[NodeView],
    holds: &[(String, Hold)],
) -> Vec<Explanation> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let conditions =
        pool.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut found = Vec::new();
    for (kind, state, next) in OF_POOLS {
        if let Some(condition) = holding(conditions, &kind) {
            found.push(Explanation {
                object: format!("pool {name}"),
                state,
                cause: text(condition),
                since: condition.last_transition_time.clone(),
                next: next.to_owned(),
            });
        }
    }
    let since = |kind: &PoolCondition| {
        holding(conditions, kind).and_then(|condition| condition.last_transition_time.clone())
    };
    let degraded = nodes.iter().filter(|node| node.is_degraded()).map(|node| Explanation {
        object: format!("node {}", node.name),
        state: State::Degraded,
        cause: if node.reason.is_empty() {
            "the daemon gave no reason".to_owned()
        } else {
            node.reason.clone()
        },
        // The pool is degraded since its first node failed; the nodes have no time of their own.
        since: since(&PoolCondition::NodeDegraded),
        next: remedy(node),
    });
    found.extend(degraded);
    let is_degraded = |name: &str| nodes.iter().any(|node| node.name == name && node.is_degraded());
    let waiting = holds.iter().filter(|(node, _)| !is_degraded(node));
    found.extend(waiting.map(|(node, hold)| Explanation {
        object: format!("node {node}"),
        state: State::Waiting,
        cause: hold.to_string(),
        since: since(&PoolCondition::Updating),
        next: next_step(name, node, hold),
    }));
    found
}

/// Remedies for the conditions of the pool itself.
const OF_POOLS: [(PoolCondition, State, &str); 4] = [
    (
        PoolCondition::RenderDegraded,
        State::Degraded,
        "fix or delete the MachineConfig; `mco check` finds such errors before they are applied",
    ),
    (
        PoolCondition::ImageModeUnsupported,
        State::Restricted,
        "delete the MachineOSConfig, which returns nodes with a built image to the image of their \
         config",
    ),
    (
        PoolCondition::ImageBuildDegraded,
        State::Degraded,
        "see the log of the build, then fix the MachineOSConfig to start a new build",
    ),
    (
        PoolCondition::PinnedImageSetsDegraded,
        State::Degraded,
        "see the MachineConfigNodes of the pool for the images that cannot be pulled",
    ),
];

/// Returns the condition of this type if it is True.
pub(crate) fn holding<'c>(
    conditions: &'c [LooseCondition],
    kind: &PoolCondition,
) -> Option<&'c LooseCondition> {
    conditions.iter().find(|condition| {
        condition.kind == kind.as_str() && condition.status == ConditionStatus::True.as_str()
    })
}

fn text(condition: &LooseCondition) -> String {
    let text = [&condition.message, &condition.reason, &condition.kind];
    text.into_iter().find(|text| !text.is_empty()).cloned().unwrap_or_default()
}

/// Returns the remedies for the conditions of a degraded pool, each once.
pub(crate) fn remedies(conditions: &[LooseCondition]) -> Vec<String> {
    let of_pool = OF_POOLS.iter().filter(|(kind, state, _)| {
        *state == State::Degraded && holding(conditions, kind).is_some()
    });
    let nodes = holding(conditions, &PoolCondition::NodeDegraded);
    let nodes = nodes.map(|found| remedy_of(&found.message, None));
    let mut found: Vec<String> = of_pool.map(|(_, _, next)| (*next).to_owned()).collect();
    found.extend(nodes);
    found
}

/// Returns the remedy for a degraded node.
pub(crate) fn remedy(node: &NodeView) -> String {
    if node.state == Some(DaemonState::Unreconcilable) {
        return UNRECONCILABLE.to_owned();
    }
    remedy_of(&node.reason, Some(&node.name))
}

const UNRECONCILABLE: &str = "revert the change, and the node recovers by itself; settings that \
    cannot change in place need a new node";

/// Returns the remedy for the reason that a daemon gives.
fn remedy_of(reason: &str, node: Option<&str>) -> String {
    let has = |text: &str| reason.contains(text);
    if has("can't reconcile") {
        return UNRECONCILABLE.to_owned();
    }
    if has("content mismatch") || has("mode mismatch") || has("could not stat") {
        let words: Vec<&str> = ["mco drift"].into_iter().chain(node).chain(["--fix"]).collect();
        return format!(
            "restore the file, or run `{}` to write all files again, which reboots the node",
            words.join(" ")
        );
    }
    if has("failed to drain") {
        return "see the events of the node for the remaining pods and the PodDisruptionBudget that \
                protects them"
            .to_owned();
    }
    "fix the cause, or revert the change: the node then gets the pool's config again".to_owned()
}

/// Returns the next step for a waiting node.
pub(crate) fn next_step(pool: &str, node: &str, hold: &Hold) -> String {
    match hold {
        Hold::Paused => format!("run `mco rollout resume {pool}` to continue"),
        Hold::BadLimit(_) => {
            format!("set maxUnavailable of pool {pool} to a number or a percentage")
        }
        Hold::NotReady(_) => {
            format!("make node {node} ready, or uncordon it")
        }
        Hold::Cordoned => format!("run `kubectl uncordon {node}` to continue"),
        Hold::ImageMode => {
            format!("delete the MachineOSConfig of pool {pool} to leave image mode")
        }
        Hold::Undecodable(_) => "repair or delete that object".to_owned(),
        Hold::Deleting => format!("move node {node} to another pool, which then updates it"),
        Hold::NoCapacity | Hold::OperatorNode | Hold::ControlPlane => "no action needed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture::nodes, status::Finding};

    fn at(text: &str) -> Time {
        serde_json::from_str(&format!("\"{text}\"")).unwrap()
    }

    #[test]
    fn every_sentence_names_object_cause_start_and_remedy() {
        let mut subject = MachineConfigPool::default();
        subject.metadata.name = Some("worker".to_owned());
        let conditions = &mut subject.status.get_or_insert_default().conditions;
        let since = at("2026-01-01T00:00:00Z");
        let failed = Finding::yes("", "MachineConfig 99-x is not valid");
        crate::status::set(conditions, &PoolCondition::RenderDegraded, failed, &since);
        let nodes_failed = Finding::yes("", "x");
        crate::status::set(conditions, &PoolCondition::NodeDegraded, nodes_failed, &since);
        let mut fleet = nodes("a=failed b=old c=old");
        fleet[0].reason = "content mismatch for file \"/etc/foo\"".to_owned();
        let holds = [
            ("a".to_owned(), Hold::NoCapacity),
            ("b".to_owned(), Hold::Paused),
            ("c".to_owned(), Hold::NotReady("node c is reporting NotReady=False".to_owned())),
        ];
        let sentences: Vec<String> =
            pool(&subject, &fleet, &holds).iter().map(ToString::to_string).collect();
        assert_eq!(
            sentences,
            [
                "pool worker is degraded since 2026-01-01T00:00:00Z: MachineConfig 99-x is not \
                 valid; fix or delete the MachineConfig; `mco check` finds such errors before they \
                  are applied",
                "node a is degraded since 2026-01-01T00:00:00Z: content mismatch for file \
                 \"/etc/foo\"; restore the file, or run `mco drift a --fix` to write all files \
                  again, which reboots the node",
                "node b is waiting: the pool is paused; run `mco rollout resume worker` to \
                 continue",
                "node c is waiting: node c is reporting NotReady=False; make node c ready, or \
                 uncordon it",
            ]
        );
    }

    #[test]
    fn nodes_with_equal_explanations_share_a_sentence() {
        let subject = MachineConfigPool::default();
        let names = ["a", "b", "c", "d", "e"];
        let mut holds: Vec<(String, Hold)> =
            names.iter().map(|name| ((*name).to_owned(), Hold::NoCapacity)).collect();
        holds.push(("f".to_owned(), Hold::Cordoned));
        assert_eq!(
            summary(&pool(&subject, &[], &holds)),
            [
                "nodes a, b, c and 2 more are waiting: no free slot: maxUnavailable nodes are \
                 unavailable or updating; no action needed",
                "node f is waiting: cordoned by the user; run `kubectl uncordon f` to continue",
            ]
        );
    }

    #[test]
    fn a_healthy_pool_needs_no_explanation() {
        assert_eq!(pool(&MachineConfigPool::default(), &nodes("a=done b=old"), &[]), []);
    }
}
