//! Conditions of the ClusterOperator.

mod controller;

use mco_api::{
    MachineConfigPool,
    annotation::{self, JoinTokens},
    condition::{OperatorCondition, PoolCondition, reason},
    label,
    meta::ConditionStatus,
};

pub use self::controller::{ControllerState, controller_state, silence_limit};
use super::{Finding, holds};

/// The state that the operator reports.
#[derive(Clone, Debug)]
pub struct OperatorView<'a> {
    /// Version that the operator deploys.
    pub version: &'a str,
    /// Version last reported as reached; `None` before the first time.
    pub reached: Option<&'a str>,
    /// Image of the operator.
    pub image: &'a str,
    /// Step that failed, with its error.
    pub failure: Option<(&'static str, String)>,
    /// All pools of the cluster.
    pub pools: &'a [&'a MachineConfigPool],
    /// State of the controller.
    pub controller: &'a ControllerState,
    /// `CustomResourceDefinitions` of other owners that lack members, as text.
    pub incomplete: &'a [String],
    /// Authentication of new machines.
    pub join_tokens: &'a JoinTokens,
}

/// The conditions of the ClusterOperator, and the state of the version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorStatus {
    /// Conditions to set.
    pub conditions: Vec<(OperatorCondition, Finding)>,
    /// Yes if the cluster is at the version now.
    pub reached: Reached,
}

/// The state of the operator's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// The cluster is at the version.
    Yes,
    /// Required pools are still updating.
    NotYet,
}

/// Computes the conditions of the ClusterOperator.
#[must_use]
pub fn operator(view: &OperatorView<'_>) -> OperatorStatus {
    let failure = view.failure.clone().or_else(|| degraded_pool(view.pools));
    let required = || view.pools.iter().filter(|pool| is_required(pool));
    let updated = required().next().is_some() && required().all(|pool| is_updated(pool));
    let known = view.reached == Some(view.version);
    let skew = view.pools.iter().find_map(|pool| build_skew(pool));
    let runs = !matches!(view.controller, ControllerState::Silent { .. });
    // Pools that another build rendered, and pools without a controller, show no current state.
    let arrived = updated && runs && skew.is_none();
    let reached =
        if failure.is_none() && (known || arrived) { Reached::Yes } else { Reached::NotYet };

    let at_version = known || reached == Reached::Yes;
    let conditions = vec![
        (OperatorCondition::Available, available(view, known)),
        (OperatorCondition::Progressing, progressing(view, at_version, failure.is_some(), skew)),
        (OperatorCondition::Degraded, degraded(view, known, failure)),
        (OperatorCondition::Upgradeable, upgradeable(view.pools)),
        (OperatorCondition::EvaluationConditionsDetected, evaluation(view.incomplete)),
        (OperatorCondition::FirstBootUnauthenticated, first_boot(view.join_tokens)),
    ];
    OperatorStatus { conditions, reached }
}

fn available(view: &OperatorView<'_>, known: bool) -> Finding {
    let operand = format!("[{{operator {}}} {{operator-image {}}}]", view.version, view.image);
    if let ControllerState::Silent { holder, limit } = view.controller {
        let lease = format!("Lease {}/{}", label::NAMESPACE, label::CONTROLLER_CONFIG);
        let seconds = limit.as_secs();
        let cause = if holder.is_empty() {
            format!("no process has held the {lease} for {seconds}s")
        } else {
            format!("{holder} has not renewed the {lease} for {seconds}s")
        };
        let text =
            format!("Cluster not available for {operand}: the controller is not running: {cause}");
        return Finding::no(reason::CONTROLLER_NOT_RUNNING, &text);
    }
    if view.failure.is_none() || known {
        return Finding::yes(reason::AS_EXPECTED, &format!("Cluster has deployed {operand}"));
    }
    Finding::no("", "")
}

fn progressing(
    view: &OperatorView<'_>,
    at_version: bool,
    failed: bool,
    skew: Option<&str>,
) -> Finding {
    let version = view.version;
    match (at_version, failed, skew) {
        (_, false, Some(skew)) => {
            let text = format!("Working towards {version}: waiting for the controller: {skew}");
            Finding::yes(reason::BUILD_SKEW, &text)
        }
        (true, false, None) => Finding::no("", &format!("Cluster version is {version}")),
        (true, true, _) => Finding::no("", &format!("Error while reconciling {version}")),
        (false, false, None) => Finding::yes("", &format!("Working towards {version}")),
        (false, true, _) => Finding::yes("", &format!("Unable to apply {version}")),
    }
}

fn degraded(
    view: &OperatorView<'_>,
    known: bool,
    failure: Option<(&'static str, String)>,
) -> Finding {
    let Some((step, why)) = failure else { return Finding::no("", "") };
    let text = if known {
        format!("Failed to resync {} because: {why}", view.version)
    } else {
        format!("Unable to apply {}: {why}", view.version)
    };
    Finding::yes(&format!("{step}Failed"), &text)
}

/// Returns the reason for which the controller does not render the pool: its inputs are of another
/// build.
fn build_skew(pool: &MachineConfigPool) -> Option<&str> {
    let kind = PoolCondition::RenderDegraded;
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.find(|found| found.kind == kind.as_str())?;
    (found.reason == reason::BUILD_SKEW).then_some(found.message.as_str())
}

fn evaluation(incomplete: &[String]) -> Finding {
    if incomplete.is_empty() {
        return Finding::no(reason::AS_EXPECTED, "");
    }
    Finding::yes(reason::INCOMPLETE_DEFINITIONS, &incomplete.join("; "))
}

/// Reports that new machines are not authenticated.
fn first_boot(join_tokens: &JoinTokens) -> Finding {
    if join_tokens.are_required() {
        return Finding::no(reason::AS_EXPECTED, "New machines need a join token");
    }
    let text = format!(
        "Every host that reaches the machine-config-server can read the configs of new machines, \
         with the secrets in them. To require join tokens, run: kubectl annotate --overwrite \
         controllerconfig {} {}={}",
        label::CONTROLLER_CONFIG,
        annotation::JOIN_TOKENS.name(),
        JoinTokens::Required,
    );
    Finding::yes(reason::JOIN_TOKENS_OFF, &text)
}

fn upgradeable(pools: &[&MachineConfigPool]) -> Finding {
    if pools.iter().any(|pool| is(pool, &PoolCondition::Degraded)) {
        let text = "One or more machine config pools are degraded, please see `oc get mcp` for \
                    further details and resolve before upgrading";
        return Finding::no(reason::DEGRADED_POOL, text);
    }
    Finding { status: ConditionStatus::True, ..Finding::no(reason::AS_EXPECTED, "") }
}

/// Returns the failure that the first degraded pool causes.
fn degraded_pool(pools: &[&MachineConfigPool]) -> Option<(&'static str, String)> {
    let pool = pools.iter().find(|pool| is(pool, &PoolCondition::Degraded))?;
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let status = pool.status.clone().unwrap_or_default();
    let message = |kind: &PoolCondition| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|found| {
            found.kind == kind.as_str() && found.status == ConditionStatus::True.as_str()
        });
        found.map(|found| found.message.trim()).filter(|text| !text.is_empty())
    };
    // Compat: Degraded has no message for a pool that cannot be rendered, and the reference then
    // prints an empty reason.
    let nodes = message(&PoolCondition::Degraded);
    let render = message(&PoolCondition::RenderDegraded);
    let render = render.filter(|text| nodes.is_none_or(|nodes| !nodes.contains(text)));
    let reasons: Vec<&str> = nodes.into_iter().chain(render).collect();
    let reason = (!reasons.is_empty()).then(|| format!(", reason: {}", reasons.join("; ")));
    Some((
        "RequiredPools",
        format!(
            "MachineConfigPool {name} is not ready, retrying. Status: (pool degraded: true \
            total: {}, ready {}, updated: {}, unavailable: {}{})",
            status.machine_count,
            status.ready_machine_count,
            status.updated_machine_count,
            status.unavailable_machine_count,
            reason.unwrap_or_default(),
        ),
    ))
}

fn is(pool: &MachineConfigPool, kind: &PoolCondition) -> bool {
    pool.status.as_ref().is_some_and(|status| holds(&status.conditions, kind))
}

fn is_required(pool: &MachineConfigPool) -> bool {
    let labels = pool.metadata.labels.as_ref();
    labels.is_some_and(|labels| labels.contains_key(label::REQUIRED_FOR_UPGRADE))
}

/// Returns true if all nodes of the pool have its latest config.
fn is_updated(pool: &MachineConfigPool) -> bool {
    let Some(status) = &pool.status else { return false };
    let config = &pool.spec.configuration.rendered.name;
    !config.is_empty()
        && *config == status.configuration.rendered.name
        && status.observed_generation >= pool.metadata.generation.unwrap_or_default()
        && holds(&status.conditions, &PoolCondition::Updated)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Builds a pool from words such as `required` and `degraded`.
    fn pool(words: &str) -> MachineConfigPool {
        let mut pool = MachineConfigPool::default();
        pool.metadata.name = Some("master".to_owned());
        pool.spec.configuration.rendered.name = "new".to_owned();
        let now = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
        for word in words.split_whitespace() {
            let status = pool.status.get_or_insert_default();
            let mut set = |kind, text: &str| {
                super::super::set(&mut status.conditions, &kind, Finding::yes("", text), &now);
            };
            match word {
                "required" => {
                    let label = (label::REQUIRED_FOR_UPGRADE.to_owned(), String::new());
                    pool.metadata.labels = Some([label].into());
                }
                "updated" => {
                    set(PoolCondition::Updated, "");
                    status.configuration.rendered.name = "new".to_owned();
                }
                "silently-degraded" => set(PoolCondition::Degraded, ""),
                "degraded" => set(PoolCondition::Degraded, "n is broken"),
                "unrendered" => {
                    set(PoolCondition::Degraded, "");
                    set(PoolCondition::RenderDegraded, "Failed to render configuration");
                }
                "skewed" => {
                    let kind = PoolCondition::RenderDegraded;
                    let text = "ignoring MC 00-master generated by older version 1 (my version: 2)";
                    let skew = Finding::no(reason::BUILD_SKEW, text);
                    super::super::set(&mut status.conditions, &kind, skew, &now);
                }
                other => panic!("{other}"),
            }
        }
        pool
    }

    fn conditions(reached: Option<&str>, failure: Option<&str>, words: &str) -> Vec<String> {
        let pool = pool(words);
        let failure = failure.map(|why| ("MachineConfigPools", why.to_owned()));
        let view = OperatorView {
            version: "2",
            reached,
            image: "i",
            failure,
            pools: &[&pool],
            controller: &ControllerState::Running,
            incomplete: &[],
            join_tokens: &JoinTokens::Off,
        };
        lines(&operator(&view))
    }

    fn lines(status: &OperatorStatus) -> Vec<String> {
        let line = |(kind, found): &(OperatorCondition, Finding)| {
            let Finding { status, reason, message } = found;
            format!("{kind}={status} {reason}: {message}")
        };
        status.conditions.iter().take(4).map(line).collect()
    }

    // covers: O28, O30, O33
    #[test]
    fn conditions_follow_version_failure_and_pools() {
        let deployed =
            "Available=True AsExpected: Cluster has deployed [{operator 2} {operator-image i}]";
        let fine = "Upgradeable=True AsExpected: ";
        let not_degraded = "Degraded=False : ";
        let at = "Progressing=False : Cluster version is 2";
        let cases = [
            (
                "pools are updating",
                None,
                None,
                "required",
                [deployed, "Progressing=True : Working towards 2", not_degraded, fine],
            ),
            (
                "pools are updated",
                None,
                None,
                "required updated",
                [deployed, at, not_degraded, fine],
            ),
            (
                "a later rollout is no upgrade",
                Some("2"),
                None,
                "required",
                [deployed, at, not_degraded, fine],
            ),
            (
                "another version was reached",
                Some("1"),
                None,
                "required",
                [deployed, "Progressing=True : Working towards 2", not_degraded, fine],
            ),
            (
                "a first step failed",
                None,
                Some("no"),
                "required",
                [
                    "Available=False : ",
                    "Progressing=True : Unable to apply 2",
                    "Degraded=True MachineConfigPoolsFailed: Unable to apply 2: no",
                    fine,
                ],
            ),
            (
                "a step failed later",
                Some("2"),
                Some("no"),
                "required",
                [
                    deployed,
                    "Progressing=False : Error while reconciling 2",
                    "Degraded=True MachineConfigPoolsFailed: Failed to resync 2 because: no",
                    fine,
                ],
            ),
        ];
        for (case, reached, failure, words, expected) in cases {
            assert_eq!(conditions(reached, failure, words), expected, "{case}");
        }
    }

    #[test]
    fn a_degraded_pool_degrades_the_cluster_and_blocks_upgrades() {
        let cases = [
            ("degraded", ", reason: n is broken)"),
            ("unrendered", "unavailable: 0, reason: Failed to render configuration)"),
            ("unrendered degraded", ", reason: n is broken; Failed to render configuration)"),
            ("silently-degraded", "unavailable: 0)"),
            ("silently-degraded skewed", "unavailable: 0)"),
        ];
        for (words, end) in cases {
            let found = conditions(Some("2"), None, &format!("required updated {words}"));
            assert!(
                found[2].starts_with(
                    "Degraded=True RequiredPoolsFailed: Failed to resync 2 because: \
                    MachineConfigPool master is not ready"
                ) && found[2].ends_with(end),
                "{}",
                found[2]
            );
            assert!(found[3].starts_with("Upgradeable=False DegradedPool: "), "{}", found[3]);
        }
    }

    #[test]
    fn a_build_skew_is_progress_and_no_failure() {
        let progressing = "Progressing=True BuildSkew: Working towards 2: waiting for the \
            controller: ignoring MC 00-master generated by older version 1 (my version: 2)";
        for reached in [None, Some("1"), Some("2")] {
            let found = conditions(reached, None, "required updated skewed");
            assert_eq!(found[1], progressing, "{reached:?}");
            assert_eq!(found[2], "Degraded=False : ", "{reached:?}");
        }
    }

    #[test]
    fn a_version_is_not_reached_with_a_skewed_or_silent_controller() {
        let silent =
            ControllerState::Silent { holder: "c_1".to_owned(), limit: Duration::from_secs(30) };
        let running = ControllerState::Running;
        let cases = [
            ("required updated", &running, None, Reached::Yes),
            ("required updated", &ControllerState::NoLease, None, Reached::Yes),
            ("required updated skewed", &running, None, Reached::NotYet),
            ("required updated", &silent, None, Reached::NotYet),
            ("required updated", &silent, Some("2"), Reached::Yes),
        ];
        for (words, controller, reached, expected) in cases {
            let pool = pool(words);
            let view = OperatorView {
                version: "2",
                reached,
                image: "i",
                failure: None,
                pools: &[&pool],
                controller,
                incomplete: &[],
                join_tokens: &JoinTokens::Off,
            };
            assert_eq!(operator(&view).reached, expected, "{words} {controller:?} {reached:?}");
        }
    }

    #[test]
    fn machines_without_tokens_are_a_condition_with_the_command_that_ends_it() {
        let rows = [
            (JoinTokens::Off, "True"),
            (JoinTokens::Required, "False"),
            // A word that is not known requires tokens.
            (JoinTokens::from("on"), "False"),
        ];
        for (mode, expected) in rows {
            let found = first_boot(&mode);
            assert_eq!(found.status.as_str(), expected, "{mode}");
            let hint =
                found.message.contains("machineconfiguration.openshift.io/join-tokens=required");
            assert_eq!(hint, mode == JoinTokens::Off, "{}", found.message);
        }
    }

    #[test]
    fn a_silent_controller_makes_the_cluster_unavailable() {
        let pool = pool("required updated");
        let text = |holder: &str, reached: Option<&str>| {
            let controller = ControllerState::Silent {
                holder: holder.to_owned(),
                limit: Duration::from_secs(30),
            };
            let view = OperatorView {
                version: "2",
                reached,
                image: "i",
                failure: None,
                pools: &[&pool],
                controller: &controller,
                incomplete: &["a of b lacks spec.c".to_owned()],
                join_tokens: &JoinTokens::Off,
            };
            let status = operator(&view);
            let (_, evaluation) = &status.conditions[4];
            let expected = Finding::yes("IncompleteDefinitions", "a of b lacks spec.c");
            assert_eq!(evaluation, &expected);
            lines(&status)[0].clone()
        };
        let start = "Available=False MachineConfigControllerNotRunning: Cluster not available for \
            [{operator 2} {operator-image i}]: the controller is not running: ";
        let lease = "the Lease openshift-machine-config-operator/machine-config-controller for 30s";
        for reached in [None, Some("2")] {
            assert_eq!(text("c_1", reached), format!("{start}c_1 has not renewed {lease}"));
            assert_eq!(text("", reached), format!("{start}no process has held {lease}"));
        }
    }
}
