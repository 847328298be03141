//! What the operator says of the cluster as a whole: the conditions of its ClusterOperator.

use mco_api::{
    MachineConfigPool,
    condition::{OperatorCondition, PoolCondition, reason},
    label,
    meta::ConditionStatus,
};

use super::{Finding, holds};

/// What the operator knows after it has done what it could.
#[derive(Clone, Debug)]
pub struct OperatorView<'a> {
    /// The version it brings the cluster to.
    pub version: &'a str,
    /// The version the cluster has said to be at; `None` before the first time.
    pub reached: Option<&'a str>,
    /// The image it runs from.
    pub image: &'a str,
    /// The step that failed, and why.
    pub failure: Option<(&'static str, String)>,
    /// Every pool of the cluster.
    pub pools: &'a [&'a MachineConfigPool],
}

/// The conditions, and whether the version is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What to say.
    pub conditions: Vec<(OperatorCondition, Finding)>,
    /// Whether the cluster is at the version now.
    pub reached: Reached,
}

/// Whether the cluster is at the operator's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It is.
    Yes,
    /// Pools that count are still on their way.
    NotYet,
}

/// Weighs what the operator knows.
#[must_use]
pub fn operator(view: &OperatorView<'_>) -> Verdict {
    let OperatorView { version, image, .. } = view;
    let failure = view.failure.clone().or_else(|| stuck(view.pools));
    let required = || view.pools.iter().filter(|pool| is_required(pool));
    let settled = required().next().is_some() && required().all(|pool| is_settled(pool));
    let known = view.reached == Some(version);
    let reached =
        if failure.is_none() && (known || settled) { Reached::Yes } else { Reached::NotYet };

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
    Verdict { conditions, reached }
}

fn upgradeable(pools: &[&MachineConfigPool]) -> Finding {
    if pools.iter().any(|pool| is(pool, &PoolCondition::Degraded)) {
        let text = "One or more machine config pools are degraded, please see `oc get mcp` for \
                    further details and resolve before upgrading";
        return Finding::no(reason::DEGRADED_POOL, text);
    }
    Finding { status: ConditionStatus::True, ..Finding::no(reason::AS_EXPECTED, "") }
}

/// The pool that keeps the cluster from its version, and how it stands.
fn stuck(pools: &[&MachineConfigPool]) -> Option<(&'static str, String)> {
    let pool = pools.iter().find(|pool| is(pool, &PoolCondition::Degraded))?;
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let status = pool.status.clone().unwrap_or_default();
    let degraded = status.conditions.iter().find(|c| c.kind == PoolCondition::Degraded.as_str());
    let why = degraded.map(|condition| condition.message.clone()).unwrap_or_default();
    Some((
        "RequiredPools",
        format!(
            "MachineConfigPool {name} is not ready, retrying. Status: (pool degraded: true \
             total: {}, ready {}, updated: {}, unavailable: {}, reason: {why})",
            status.machine_count,
            status.ready_machine_count,
            status.updated_machine_count,
            status.unavailable_machine_count,
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

/// Whether all nodes of the pool have its newest config.
fn is_settled(pool: &MachineConfigPool) -> bool {
    let Some(status) = &pool.status else { return false };
    let config = &pool.spec.configuration.rendered.name;
    !config.is_empty()
        && *config == status.configuration.rendered.name
        && status.observed_generation >= pool.metadata.generation.unwrap_or_default()
        && holds(&status.conditions, &PoolCondition::Updated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `required`, `updated`, `degraded`, in words.
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
                    let mark = (label::REQUIRED_FOR_UPGRADE.to_owned(), String::new());
                    pool.metadata.labels = Some([mark].into());
                }
                "updated" => {
                    set(PoolCondition::Updated, "");
                    status.configuration.rendered.name = "new".to_owned();
                }
                "degraded" => set(PoolCondition::Degraded, "n is broken"),
                other => panic!("{other}"),
            }
        }
        pool
    }

    fn said(reached: Option<&str>, failure: Option<&str>, words: &str) -> Vec<String> {
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
    fn the_cluster_is_told_of_as_it_is() {
        let deployed =
            "Available=True AsExpected: Cluster has deployed [{operator 2} {operator-image i}]";
        let fine = "Upgradeable=True AsExpected: ";
        let calm = "Degraded=False : ";
        let at = "Progressing=False : Cluster version is 2";
        let cases = [
            (
                "pools are on their way",
                None,
                None,
                "required",
                [deployed, "Progressing=True : Working towards 2", calm, fine],
            ),
            ("pools are there", None, None, "required updated", [deployed, at, calm, fine]),
            (
                "a later roll-out is no upgrade",
                Some("2"),
                None,
                "required",
                [deployed, at, calm, fine],
            ),
            (
                "another version was there",
                Some("1"),
                None,
                "required",
                [deployed, "Progressing=True : Working towards 2", calm, fine],
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
            assert_eq!(said(reached, failure, words), expected, "{case}");
        }
    }

    #[test]
    fn a_degraded_pool_degrades_the_cluster_and_holds_upgrades() {
        let said = said(Some("2"), None, "required updated degraded");
        assert!(
            said[2].starts_with(
                "Degraded=True RequiredPoolsFailed: Failed to resync 2 because: \
                                 MachineConfigPool master is not ready"
            ) && said[2].ends_with("reason: n is broken)"),
            "{}",
            said[2]
        );
        assert!(said[3].starts_with("Upgradeable=False DegradedPool: "), "{}", said[3]);
    }
}
