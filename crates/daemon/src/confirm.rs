//! Confirms the config that a machine has rebooted into, or rolls it back.
//!
//! A config is confirmed once the machine proves healthy: its kubelet responds if it is to run one,
//! the administrator's checks pass, and the API server can be reached. A config that is not
//! confirmed in time is rolled back: all changes are undone, the machine reboots once more, and the
//! node reports the reason. The same config is not retried until another config is desired or the
//! force file asks for it.
//!
//! The daemon decides. If the config keeps the daemon itself from starting, a unit of the machine
//! rolls the config back (`standby`).

pub mod standby;
mod startup;

use std::time::Duration;

use mco_host::{CheckResult, Host, Root, System};
use serde::{Deserialize, Serialize};

use crate::disk::{self, DiskError};

pub use self::startup::{Confirmation, Probe, confirm_or_roll_back};

/// Default time to prove healthy: enough for slow firmware, a full resync of the container engine
/// and a slow network.
pub const DEADLINE: Duration = Duration::from_mins(15);

/// Pause between two health checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

const POLICY: &str = "/etc/machine-config-daemon/mco-confirm.json";
const ROLLED_BACK: &str = "/etc/machine-config-daemon/mco-taken-back.json";

/// The results of a machine's health checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Reachability of the API server; skipped without a cluster.
    pub cluster: CheckResult,
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

/// The health checks after the next reboot. A check that did not pass before the reboot is skipped:
/// a kubelet without a health endpoint, or a check that fails anyway, says nothing about the new
/// config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmPolicy {
    deadline_seconds: u64,
    kubelet: bool,
    checks: bool,
}

/// Decides about a config whose machine has been up for `waited`.
#[must_use]
pub fn decide(health: &Health, waited: Duration, deadline: Duration) -> HealthDecision {
    let failures = failures(health);
    if failures.is_empty() {
        return HealthDecision::Keep;
    }
    match deadline.checked_sub(waited).filter(|left| !left.is_zero()) {
        Some(left) => HealthDecision::Wait(left.min(CHECK_INTERVAL)),
        None => HealthDecision::RollBack(failures.join("; ")),
    }
}

fn failures(health: &Health) -> Vec<String> {
    let mut failures = Vec::new();
    for answer in [&health.kubelet, &health.checks] {
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

/// Requires that the next update is confirmed within `deadline`; zero disables the confirmation.
pub fn prepare<S: System>(host: &Host<S>, deadline: Duration) -> Result<(), DiskError> {
    let was_healthy = |answer: CheckResult| answer == CheckResult::Passed;
    let kubelet = !deadline.is_zero() && was_healthy(host.system.check_kubelet());
    let checks = !deadline.is_zero() && was_healthy(host.system.run_checks());
    let policy = ConfirmPolicy { deadline_seconds: deadline.as_secs(), kubelet, checks };
    if deadline.is_zero() {
        host.root.remove(POLICY)?;
    } else if self::policy(&host.root)? != Some(policy) {
        disk::write(&host.root, POLICY, &policy)?;
    }
    Ok(())
}

/// Changes the time to prove healthy, if a confirmation is required.
pub fn set_deadline(root: &Root, deadline: Duration) -> Result<(), DiskError> {
    match policy(root)? {
        Some(policy) => disk::write(
            root,
            POLICY,
            &ConfirmPolicy { deadline_seconds: deadline.as_secs(), ..policy },
        ),
        None => Ok(()),
    }
}

/// Returns the required health checks; none if no confirmation is required.
pub fn policy(root: &Root) -> Result<Option<ConfirmPolicy>, DiskError> {
    disk::parsed(root, POLICY)
}

impl ConfirmPolicy {
    /// Returns the time to prove healthy.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_seconds)
    }

    /// Runs the kubelet check and the machine's checks.
    fn check<S: System>(self, host: &Host<S>) -> (CheckResult, CheckResult) {
        let checked = |wanted: bool, ask: &dyn Fn() -> CheckResult| {
            if wanted { ask() } else { CheckResult::Skipped }
        };
        let kubelet = checked(self.kubelet, &|| host.system.check_kubelet());
        (kubelet, checked(self.checks, &|| host.system.run_checks()))
    }
}

/// Checks a kubelet that was healthy before the last update; skipped otherwise.
pub(crate) fn kubelet<S: System>(host: &Host<S>) -> Result<CheckResult, DiskError> {
    let was_healthy = policy(&host.root)?.is_some_and(|policy| policy.kubelet);
    Ok(if was_healthy { host.system.check_kubelet() } else { CheckResult::Skipped })
}

/// Returns the config that was rolled back last, if it is still refused.
pub fn rolled_back(root: &Root) -> Result<Option<RolledBackConfig>, DiskError> {
    disk::parsed(root, ROLLED_BACK)
}

/// Records a rolled back config, which is refused from then on.
pub(crate) fn record_rolled_back(root: &Root, back: &RolledBackConfig) -> Result<(), DiskError> {
    disk::write(root, ROLLED_BACK, back)
}

/// Removes the record of the rolled back config, so that it can be retried.
pub(crate) fn clear_rolled_back(root: &Root) -> Result<(), DiskError> {
    root.remove(ROLLED_BACK)?;
    Ok(())
}

/// Returns the rolled back config if `config` must not be retried; none allows the update.
///
/// Removes the record once another config is desired, or the force file asks for a retry.
pub fn refusal(
    root: &Root,
    config: &str,
    is_forced: bool,
) -> Result<Option<RolledBackConfig>, DiskError> {
    let Some(back) = rolled_back(root)? else { return Ok(None) };
    if back.config == config && !is_forced {
        return Ok(Some(back));
    }
    clear_rolled_back(root)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use mco_host::SimulatedSystem;

    use super::*;

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
            let health = Health { cluster, kubelet, checks };
            let found = match decide(&health, Duration::from_secs(waited), DEADLINE) {
                HealthDecision::Keep => "keep".to_owned(),
                HealthDecision::Wait(pause) => format!("wait {}", pause.as_secs()),
                HealthDecision::RollBack(why) => format!("back: {why}"),
            };
            assert_eq!(found, want, "{health:?} after {waited}");
        }
    }

    #[test]
    fn a_rolled_back_config_is_refused_until_another_is_desired_or_a_retry_is_forced() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let back = RolledBackConfig { config: "a".to_owned(), why: "x".to_owned() };
        assert_eq!(refusal(&root, "a", false).unwrap(), None);
        record_rolled_back(&root, &back).unwrap();
        assert_eq!(refusal(&root, "a", false).unwrap(), Some(back.clone()));
        assert_eq!(refusal(&root, "b", false).unwrap(), None);
        assert_eq!(refusal(&root, "a", false).unwrap(), None, "forgotten since");
        record_rolled_back(&root, &back).unwrap();
        assert_eq!(refusal(&root, "a", true).unwrap(), None);
        assert_eq!(rolled_back(&root).unwrap(), None);
    }

    #[test]
    fn the_required_checks_are_recorded_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let host = Host { root, system };
        assert_eq!(policy(&host.root).unwrap(), None);
        prepare(&host, DEADLINE).unwrap();
        assert_eq!(policy(&host.root).unwrap().unwrap().deadline(), DEADLINE);
        set_deadline(&host.root, 2 * DEADLINE).unwrap();
        let found = policy(&host.root).unwrap().unwrap();
        assert_eq!(found.deadline(), 2 * DEADLINE);
        // A kubelet without a response before an update is not checked after it.
        host.system.call_log().fail("kubelet healthz");
        assert_eq!(found.check(&host), (CheckResult::Skipped, CheckResult::Skipped));
        let strict = ConfirmPolicy { kubelet: true, ..found };
        assert!(matches!(strict.check(&host), (CheckResult::Failed(_), CheckResult::Skipped)));
        prepare(&host, Duration::ZERO).unwrap();
        assert_eq!(policy(&host.root).unwrap(), None, "zero disables the confirmation");
        set_deadline(&host.root, DEADLINE).unwrap();
        assert_eq!(policy(&host.root).unwrap(), None);
    }
}
