//! Explanations of a pool that is degraded or restricted, and the remedies for nodes: object, cause, start
//! and remedy.
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

use crate::rollout::{Hold, NodeView};

/// A state of a pool that needs the administrator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Explanation {
    /// Name of the pool.
    pool: String,
    state: State,
    /// Cause of the state.
    cause: String,
    /// Start of the state, if known.
    since: Option<Time>,
    /// Next step for the administrator.
    next: &'static str,
}

/// The state of an explained pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The pool failed and does not recover by itself.
    Degraded,
    /// The pool works without a part of its settings.
    Restricted,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, state, cause, since, next } = self;
        let state = match state {
            State::Degraded => "degraded",
            State::Restricted => "restricted",
        };
        write!(f, "pool {pool} is {state}")?;
        if let Some(Time(since)) = since {
            write!(f, " since {since:.0}")?;
        }
        write!(f, ": {cause}; {next}")
    }
}

/// Explains the conditions of the pool itself.
pub(crate) fn pool(pool: &MachineConfigPool) -> Vec<Explanation> {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
    let explained = |(kind, state, next): (PoolCondition, State, &'static str)| {
        let condition = holding(conditions.unwrap_or_default(), &kind)?;
        Some(Explanation {
            pool: pool.metadata.name.clone().unwrap_or_default(),
            state,
            cause: text(condition),
            since: condition.last_transition_time.clone(),
            next,
        })
    };
    OF_POOLS.into_iter().filter_map(explained).collect()
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
         config: `mco get machineosconfigs` lists it",
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
    let nodes = nodes.map(|found| remedy_of(&found.message, None, None));
    let mut found: Vec<String> = of_pool.map(|(_, _, next)| (*next).to_owned()).collect();
    found.extend(nodes);
    found
}

/// Returns the remedy for a degraded node of a pool.
pub(crate) fn remedy(node: &NodeView, pool: Option<&str>) -> String {
    if node.state == Some(DaemonState::Unreconcilable) {
        return unreconcilable(pool);
    }
    remedy_of(&node.reason, Some(&node.name), pool)
}

fn unreconcilable(pool: Option<&str>) -> String {
    format!(
        "{}, and the node recovers by itself; settings that cannot change in place need a new node",
        revert(pool)
    )
}

/// Returns the way to revert the change of a pool, with the command if the pool is known.
fn revert(pool: Option<&str>) -> String {
    match pool {
        Some(pool) => format!("revert the change with `mco rollout undo {pool}`"),
        None => "revert the change".to_owned(),
    }
}

/// Returns the remedy for the reason that a daemon gives.
fn remedy_of(reason: &str, node: Option<&str>, pool: Option<&str>) -> String {
    let has = |text: &str| reason.contains(text);
    let command = |words: [&'static str; 2]| {
        let [verb, flag] = words;
        let words =
            [verb].into_iter().chain(node).chain(Some(flag).filter(|flag| !flag.is_empty()));
        words.collect::<Vec<_>>().join(" ")
    };
    if has("can't reconcile") {
        return unreconcilable(pool);
    }
    if has("content mismatch") || has("mode mismatch") || has("could not stat") {
        return format!(
            "restore the file, or run `{}` to write all files again, which reboots the node",
            command(["mco drift", "--fix"])
        );
    }
    if has("failed to drain") {
        return format!(
            "`{}` names the remaining pods and the PodDisruptionBudget that protects them",
            command(["mco events", ""])
        );
    }
    format!("fix the cause, or {}: the node then gets the pool's config again", revert(pool))
}

/// Returns the next step for a waiting node.
pub(crate) fn next_step(pool: &str, node: &str, hold: &Hold) -> String {
    match hold {
        Hold::Paused => format!("run `mco rollout resume {pool}` to continue"),
        Hold::BadLimit(_) => {
            format!("set maxUnavailable of pool {pool} to a number or a percentage")
        }
        Hold::NotReady(_) => make_ready(node),
        Hold::Cordoned => format!("run `mco node uncordon {node}` to continue"),
        Hold::ImageMode => format!(
            "delete the MachineOSConfig of pool {pool} to leave image mode: `mco get \
             machineosconfigs` lists it"
        ),
        Hold::Undecodable(_) => "repair or delete that object".to_owned(),
        Hold::Deleting => format!("move node {node} to another pool, which then updates it"),
        Hold::NoCapacity | Hold::OperatorNode | Hold::ControlPlane => "no action needed".to_owned(),
    }
}

/// The next step for a node that no pool selects, without its name, so that nodes share it.
pub const JOIN_POOL: &str =
    "label the node, for example with `kubectl label node NODE node-role.kubernetes.io/worker=`";

/// Returns the next step for a node that is not ready.
pub(crate) fn make_ready(node: &str) -> String {
    format!("make node {node} ready: `kubectl describe node {node}` shows its conditions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixture::nodes, status::Finding};

    #[test]
    fn a_sentence_about_a_pool_names_cause_start_and_remedy() {
        let mut subject = MachineConfigPool::default();
        assert_eq!(pool(&subject), []);
        subject.metadata.name = Some("worker".to_owned());
        let conditions = &mut subject.status.get_or_insert_default().conditions;
        let since: Time = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
        let failed = Finding::yes("", "MachineConfig 99-x is not valid");
        crate::status::set(conditions, &PoolCondition::RenderDegraded, failed, &since);
        crate::status::set(conditions, &PoolCondition::NodeDegraded, Finding::yes("", "x"), &since);
        let sentences: Vec<String> = pool(&subject).iter().map(ToString::to_string).collect();
        assert_eq!(
            sentences,
            [
                "pool worker is degraded since 2026-01-01T00:00:00Z: MachineConfig 99-x is not valid; fix \
              or delete the MachineConfig; `mco check` finds such errors before they are applied"
            ]
        );
    }

    #[test]
    fn the_remedy_for_a_degraded_node_is_a_command() {
        let mut node = nodes("a=failed").remove(0);
        let rows = [
            ("content mismatch for file \"/etc/foo\"", "`mco drift a --fix`"),
            ("failed to drain node: a after 1 hour", "`mco events a`"),
            ("it is broken", "`mco rollout undo worker`"),
            ("can't reconcile config", "`mco rollout undo worker`"),
        ];
        for (reason, command) in rows {
            reason.clone_into(&mut node.reason);
            let found = remedy(&node, Some("worker"));
            assert!(found.contains(command), "{reason}: {found}");
        }
        node.state = Some(DaemonState::Unreconcilable);
        assert!(remedy(&node, Some("worker")).contains("`mco rollout undo worker`"));
        assert!(!remedy(&node, None).contains('`'), "the pool is not known");
    }
}
