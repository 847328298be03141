//! Conditions of the ClusterOperator.

use mco_api::{
    MachineConfigPool,
    condition::{OperatorCondition, PoolCondition, reason},
    label,
    meta::ConditionStatus,
};

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
    let OperatorView { version, image, .. } = view;
    let failure = view.failure.clone().or_else(|| degraded_pool(view.pools));
    let required = || view.pools.iter().filter(|pool| is_required(pool));
    let updated = required().next().is_some() && required().all(|pool| is_updated(pool));
    let known = view.reached == Some(version);
    let reached =
        if failure.is_none() && (known || updated) { Reached::Yes } else { Reached::NotYet };

    let progressing = match (known || reached == Reached::Yes, &failure) {
        (true, None) => Finding::no("", &format!("Cluster version is {version}")),
        (true, Some(_)) => Finding::no("", &format!("Error while reconciling {version}")),
        (false, None) => Finding::yes("", &format!("Working towards {version}")),
        (false, Some(_)) => Finding::yes("", &format!("Unable to apply {version}")),
    };
    let degraded = match &failure {
        None => Finding::no("", ""),
        Some((step, why)) => {
            let text = if known {
                format!("Failed to resync {version} because: {why}")
            } else {
                format!("Unable to apply {version}: {why}")
            };
            Finding::yes(&format!("{step}Failed"), &text)
        }
    };
    let deployed =
        format!("Cluster has deployed [{{operator {version}}} {{operator-image {image}}}]");
    let available = if view.failure.is_none() || known {
        Finding::yes(reason::AS_EXPECTED, &deployed)
    } else {
        Finding::no("", "")
    };
    let conditions = vec![
        (OperatorCondition::Available, available),
        (OperatorCondition::Progressing, progressing),
        (OperatorCondition::Degraded, degraded),
        (OperatorCondition::Upgradeable, upgradeable(view.pools)),
        (OperatorCondition::EvaluationConditionsDetected, Finding::no(reason::AS_EXPECTED, "")),
    ];
    OperatorStatus { conditions, reached }
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
        let condition = status.conditions.iter().find(|found| found.kind == kind.as_str());
        condition.map(|found| found.message.as_str()).filter(|text| !text.is_empty())
    };
    // Compat: a pool that cannot be rendered has no message in Degraded. The reference then prints
    // an empty reason; the message of RenderDegraded is used here.
    let reason = message(&PoolCondition::Degraded)
        .or_else(|| message(&PoolCondition::RenderDegraded))
        .map(|text| format!(", reason: {text}"));
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
    let waits = status.conditions.iter().any(|condition| {
        condition.kind == PoolCondition::RenderDegraded.as_str()
            && condition.reason == reason::BUILD_SKEW
    });
    if waits {
        // Its config is that of the earlier build.
        return false;
    }
    let config = &pool.spec.configuration.rendered.name;
    !config.is_empty()
        && *config == status.configuration.rendered.name
        && status.observed_generation >= pool.metadata.generation.unwrap_or_default()
        && holds(&status.conditions, &PoolCondition::Updated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a pool from the words `required`, `updated`, `degraded` and `unrendered`.
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
                "degraded" => set(PoolCondition::Degraded, "n is broken"),
                "skewed" => {
                    let found = Finding::no(reason::BUILD_SKEW, "ignoring MC");
                    let kind = PoolCondition::RenderDegraded;
                    super::super::set(&mut status.conditions, &kind, found, &now);
                }
                "unrendered" => {
                    set(PoolCondition::Degraded, "");
                    set(PoolCondition::RenderDegraded, "Failed to render configuration");
                }
                other => panic!("{other}"),
            }
        }
        pool
    }

    #[test]
    fn a_build_skew_is_progress_and_no_failure() {
        let found = conditions(Some("1"), None, "required updated skewed");
        assert!(found.contains(&"Progressing=True : Working towards 2".to_owned()), "{found:?}");
        assert!(found.contains(&"Degraded=False : ".to_owned()), "{found:?}");
        let found = conditions(Some("1"), None, "required updated");
        assert!(
            found.contains(&"Progressing=False : Cluster version is 2".to_owned()),
            "{found:?}"
        );
    }

    fn conditions(reached: Option<&str>, failure: Option<&str>, words: &str) -> Vec<String> {
        let pool = pool(words);
        let failure = failure.map(|why| ("MachineConfigPools", why.to_owned()));
        let view = OperatorView { version: "2", reached, image: "i", failure, pools: &[&pool] };
        operator(&view)
            .conditions
            .iter()
            .take(4)
            .map(|(kind, found)| {
                let Finding { status, reason, message } = found;
                format!("{kind}={status} {reason}: {message}")
            })
            .collect()
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
            ("unrendered", ", reason: Failed to render configuration)"),
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
}
