//! Decides for a standby: the unit of a machine that rolls a config back if no daemon starts after
//! the reboot.

use std::time::Duration;

use mco_api::duration;

use super::{
    CheckResult, Health,
    health::{self, CHECK_INTERVAL},
};

/// The decision of a standby that holds the lock of the machine, so that no daemon runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StandbyDecision {
    /// Decide again after this pause.
    Wait(Duration),
    /// Run the checks of the machine first.
    Check,
    /// Roll the config back for this reason.
    RollBack(String),
}

/// Decides about a config whose machine has been up for `waited` without a daemon. `health` has the
/// checks of the machine, once they ran.
///
/// Never confirms a config: only a daemon can check everything.
#[must_use]
pub fn decide(waited: Duration, deadline: Duration, health: Option<&Health>) -> StandbyDecision {
    if let Some(left) = deadline.checked_sub(waited).filter(|left| !left.is_zero()) {
        return StandbyDecision::Wait(left);
    }
    let Some(health) = health else { return StandbyDecision::Check };
    let why = health::failures(health).join("; ");
    if why.is_empty() {
        return StandbyDecision::Wait(CHECK_INTERVAL);
    }
    StandbyDecision::RollBack(why)
}

/// Returns the check of the cluster, which fails without a daemon.
///
/// A cluster that is down starts no daemon either, so that passing checks of the machine count for
/// both.
#[must_use]
pub fn missing_daemon(deadline: Duration) -> CheckResult {
    let deadline = duration::format_go(deadline);
    CheckResult::Failed(format!("no daemon started to confirm it within {deadline}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_rolls_back_at_the_deadline_unless_the_checks_of_the_machine_pass() {
        let minute = Duration::from_mins(1);
        let health = |kubelet: &str, checks| {
            let kubelet = match kubelet {
                "" => CheckResult::Passed,
                why => CheckResult::Failed(why.to_owned()),
            };
            let network = CheckResult::Skipped;
            Health { cluster: missing_daemon(minute), network, kubelet, checks }
        };
        let late = "no daemon started to confirm it within 1m0s";
        let back = |why: &str| StandbyDecision::RollBack(why.to_owned());
        let wait = StandbyDecision::Wait;
        let cases = [
            (0, None, wait(minute)),
            (59, Some(health("ill", CheckResult::Skipped)), wait(Duration::from_secs(1))),
            (60, None, StandbyDecision::Check),
            (60, Some(health("", CheckResult::Skipped)), back(late)),
            (61, Some(health("ill", CheckResult::Skipped)), back(&format!("ill; {late}"))),
            (99, Some(health("", CheckResult::Passed)), wait(CHECK_INTERVAL)),
            (99, Some(health("ill", CheckResult::Passed)), back("ill")),
        ];
        for (seconds, health, want) in cases {
            let found = decide(Duration::from_secs(seconds), minute, health.as_ref());
            assert_eq!(found, want, "{health:?} after {seconds}");
        }
    }
}
