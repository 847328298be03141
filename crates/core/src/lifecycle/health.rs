//! Decides about the config that a machine has rebooted into: keep it, wait, or roll it back.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Pause between two health checks.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Time that each start of a daemon counts as, so that a daemon that keeps crashing runs out of
/// time, too.
pub const START_COST: Duration = Duration::from_secs(10);

/// The result of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckResult {
    /// The check passed.
    Passed,
    /// The check failed for this reason.
    Failed(String),
    /// The check does not apply to the machine.
    Skipped,
}

/// The results of a machine's health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Reachability of the API server; skipped without a cluster.
    pub cluster: CheckResult,
    /// The machine's own network, if it worked before the update.
    pub network: CheckResult,
    /// Health of the kubelet.
    pub kubelet: CheckResult,
    /// Result of the checks on the machine.
    pub checks: CheckResult,
}

/// The decision about a config after its reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthDecision {
    /// The config is kept.
    Keep,
    /// The config is not confirmed yet; check again after this pause.
    Wait(Duration),
    /// The config is rolled back for this reason.
    RollBack(String),
}

/// A config that was rolled back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBackConfig {
    /// Name of the config.
    pub config: String,
    /// Reason of the rollback.
    pub why: String,
}

/// Decides about a config whose machine has been up for `waited`.
#[must_use]
pub fn decide(health: &Health, waited: Duration, deadline: Duration) -> HealthDecision {
    let failures = failures(health);
    if failures.is_empty() {
        return HealthDecision::Keep;
    }
    let is_cluster_only = failures.len() == 1 && is_failed(&health.cluster);
    match deadline.checked_sub(waited).filter(|left| !left.is_zero()) {
        Some(left) => HealthDecision::Wait(left.min(CHECK_INTERVAL)),
        // An API server that cannot be reached from a machine whose network works is no proof
        // against the config: the cluster may be down.
        None if is_cluster_only && health.network == CheckResult::Passed => HealthDecision::Keep,
        None => HealthDecision::RollBack(failures.join("; ")),
    }
}

fn is_failed(answer: &CheckResult) -> bool {
    matches!(answer, CheckResult::Failed(_))
}

/// Returns the failed checks that count against a config.
#[must_use]
pub fn failures(health: &Health) -> Vec<String> {
    let mut failures = Vec::new();
    for answer in [&health.kubelet, &health.checks, &health.network] {
        if let CheckResult::Failed(why) = answer {
            failures.push(why.clone());
        }
    }
    // If the machine's own checks pass, an unreachable API server does not count: the cluster may
    // be down.
    if let (CheckResult::Failed(why), CheckResult::Skipped | CheckResult::Failed(_)) =
        (&health.cluster, &health.checks)
    {
        failures.push(why.clone());
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_mins(15);

    #[test]
    fn a_config_is_kept_once_healthy_and_rolled_back_at_the_deadline() {
        let no = |why: &str| CheckResult::Failed(why.to_owned());
        let cases = [
            (CheckResult::Passed, CheckResult::Passed, CheckResult::Skipped, 0, "keep"),
            (CheckResult::Passed, CheckResult::Skipped, CheckResult::Skipped, 9999, "keep"),
            (CheckResult::Skipped, CheckResult::Skipped, CheckResult::Skipped, 0, "keep"),
            (no("api"), CheckResult::Passed, CheckResult::Skipped, 0, "wait 5"),
            (no("api"), CheckResult::Passed, CheckResult::Skipped, 897, "wait 3"),
            (no("api"), CheckResult::Passed, CheckResult::Skipped, 900, "back: api"),
            (no("api"), CheckResult::Passed, CheckResult::Passed, 900, "keep"),
            (no("api"), CheckResult::Passed, no("check"), 901, "back: check; api"),
            (CheckResult::Passed, no("kubelet"), CheckResult::Passed, 10, "wait 5"),
            (CheckResult::Passed, no("kubelet"), CheckResult::Passed, 900, "back: kubelet"),
            (CheckResult::Skipped, CheckResult::Skipped, no("check"), 900, "back: check"),
        ];
        for (cluster, kubelet, checks, waited, want) in cases {
            let health = Health { cluster, kubelet, checks, network: CheckResult::Skipped };
            let found = match decide(&health, Duration::from_secs(waited), DEADLINE) {
                HealthDecision::Keep => "keep".to_owned(),
                HealthDecision::Wait(pause) => format!("wait {}", pause.as_secs()),
                HealthDecision::RollBack(why) => format!("back: {why}"),
            };
            assert_eq!(found, want, "{health:?} after {waited}");
        }
    }

    #[test]
    fn an_unreachable_cluster_counts_only_against_a_machine_whose_network_is_broken() {
        let no = |why: &str| CheckResult::Failed(why.to_owned());
        let cases = [
            (CheckResult::Passed, CheckResult::Passed, 0, HealthDecision::Wait(CHECK_INTERVAL)),
            (CheckResult::Passed, CheckResult::Passed, 900, HealthDecision::Keep),
            (
                CheckResult::Passed,
                no("kubelet"),
                900,
                HealthDecision::RollBack("kubelet; api".to_owned()),
            ),
            (
                no("no default route"),
                CheckResult::Passed,
                900,
                HealthDecision::RollBack("no default route; api".to_owned()),
            ),
            // Without a check of the network, the cluster is all that is known.
            (
                CheckResult::Skipped,
                CheckResult::Passed,
                900,
                HealthDecision::RollBack("api".to_owned()),
            ),
        ];
        for (network, kubelet, waited, want) in cases {
            let health =
                Health { cluster: no("api"), network, kubelet, checks: CheckResult::Skipped };
            let found = decide(&health, Duration::from_secs(waited), DEADLINE);
            assert_eq!(found, want, "{health:?} after {waited}");
        }
    }
}
