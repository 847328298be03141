//! What is wrong or waiting in a pool, for people: which object, why, since when, and what to do.
//!
//! Conditions keep the reference's words, because programs match on them; these sentences say the
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

/// One thing that somebody may want to do something about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The object, such as `node worker-1` or `pool worker`.
    pub object: String,
    /// How it is.
    pub state: State,
    /// Why.
    pub cause: String,
    /// Since when, where that is known.
    pub since: Option<Time>,
    /// What to do next.
    pub next: String,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It failed, and will not get on by itself.
    Degraded,
    /// It will get on once something else happens.
    Waiting,
}

impl Explanation {
    fn sentence(&self, subject: &str, next: &str) -> String {
        let state = match self.state {
            State::Degraded => "degraded",
            State::Waiting => "waiting",
        };
        let since = match &self.since {
            Some(Time(since)) => format!(" since {since}"),
            None => String::new(),
        };
        format!("{subject} {state}{since}: {}; {next}", self.cause)
    }

    /// Whether the same can be said of both.
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

/// How many nodes of whom the same is said are named.
const NAMED: usize = 3;

/// One sentence for everything, and one for all nodes of whom the same can be said.
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
        first.sentence(&format!("nodes {names}{more} are"), &first.next.replace(ITS, THEIR))
    };
    groups.map(sentence).collect()
}

const ITS: &str = "its turn comes";
const THEIR: &str = "their turn comes";

/// Everything that is wrong or waiting in a pool: the pool itself first, then node by node.
///
/// `holds` is what the roll-out said of the nodes that do not start.
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
    for (kind, next) in OF_POOLS {
        if let Some(condition) = holding(conditions, &kind) {
            found.push(Explanation {
                object: format!("pool {name}"),
                state: State::Degraded,
                cause: said(condition),
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
            "its daemon gave no reason".to_owned()
        } else {
            node.reason.clone()
        },
        // The pool has been degraded for as long as its first node, and no node says since when.
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
        next: patience(name, node, hold),
    }));
    found
}

/// What to do about the conditions that a pool has of itself.
const OF_POOLS: [(PoolCondition, &str); 3] = [
    (
        PoolCondition::RenderDegraded,
        "mend or delete the MachineConfig it names; `mco check` finds such faults beforehand",
    ),
    (
        PoolCondition::ImageBuildDegraded,
        "look at the log of the build, mend the MachineOSConfig, and a new build starts",
    ),
    (
        PoolCondition::PinnedImageSetsDegraded,
        "see which images cannot be pulled in the MachineConfigNodes of the pool",
    ),
];

fn holding<'c>(
    conditions: &'c [LooseCondition],
    kind: &PoolCondition,
) -> Option<&'c LooseCondition> {
    conditions.iter().find(|condition| {
        condition.kind == kind.as_str() && condition.status == ConditionStatus::True.as_str()
    })
}

fn said(condition: &LooseCondition) -> String {
    let text = [&condition.message, &condition.reason, &condition.kind];
    text.into_iter().find(|text| !text.is_empty()).cloned().unwrap_or_default()
}

/// What helps a degraded node.
fn remedy(node: &NodeView) -> String {
    let has = |text: &str| node.reason.contains(text);
    if node.state == Some(DaemonState::Unreconcilable) || has("can't reconcile") {
        return "take the change back, and the node goes on by itself; what cannot change in place \
                needs a new node"
            .to_owned();
    }
    if has("content mismatch") || has("mode mismatch") || has("could not stat") {
        return format!(
            "put the file back as it was, or make the node write everything again: create {} on it, \
             which reboots it",
            crate::diff::reconcile::FORCE_FILE
        );
    }
    if has("failed to drain") {
        return "see which pods are left and which PodDisruptionBudget keeps them: \
                `kubectl get events` on the node says it"
            .to_owned();
    }
    "mend the cause, or take the change back: the node is then told the pool's config again"
        .to_owned()
}

/// What a node waits for, and whether anybody can do anything.
fn patience(pool: &str, node: &str, hold: &Hold) -> String {
    match hold {
        Hold::Paused => format!("unpause pool {pool} when it may go on"),
        Hold::BadLimit(_) => {
            format!("give pool {pool} a maxUnavailable that is a number or a percentage")
        }
        Hold::NotReady(_) => {
            format!("make node {node} ready, or uncordon it if it was cordoned on purpose")
        }
        Hold::Cordoned => "ask whoever did".to_owned(),
        Hold::ImageMode => format!("delete MachineOSConfig {pool} to leave image mode"),
        Hold::Deleting => format!("give node {node} to another pool, which then moves it"),
        Hold::NoCapacity | Hold::OperatorNode | Hold::Neighbour => {
            format!("nothing is to be done: {ITS}")
        }
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
    fn every_sentence_names_object_cause_time_and_way_out() {
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
        let said: Vec<String> =
            pool(&subject, &fleet, &holds).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "pool worker is degraded since 2026-01-01T00:00:00Z: MachineConfig 99-x is not \
                 valid; mend or delete the MachineConfig it names; `mco check` finds such faults \
                 beforehand",
                "node a is degraded since 2026-01-01T00:00:00Z: content mismatch for file \
                 \"/etc/foo\"; put the file back as it was, or make the node write everything \
                 again: create /run/machine-config-daemon-force on it, which reboots it",
                "node b is waiting: the pool is paused; unpause pool worker when it may go on",
                "node c is waiting: node c is reporting NotReady=False; make node c ready, or \
                 uncordon it if it was cordoned on purpose",
            ]
        );
    }

    #[test]
    fn what_is_true_of_many_nodes_is_said_once() {
        let subject = MachineConfigPool::default();
        let names = ["a", "b", "c", "d", "e"];
        let mut holds: Vec<(String, Hold)> =
            names.iter().map(|name| ((*name).to_owned(), Hold::NoCapacity)).collect();
        holds.push(("f".to_owned(), Hold::Cordoned));
        assert_eq!(
            summary(&pool(&subject, &[], &holds)),
            [
                "nodes a, b, c and 2 more are waiting: no more nodes may be out of service at a \
                 time; nothing is to be done: their turn comes",
                "node f is waiting: somebody cordoned it; kubectl uncordon lets it go on; ask whoever \
                 did",
            ]
        );
    }

    #[test]
    fn a_well_pool_needs_no_words() {
        assert_eq!(pool(&MachineConfigPool::default(), &nodes("a=done b=old"), &[]), []);
    }
}
