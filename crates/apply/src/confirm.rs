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

mod network;
pub mod standby;

use std::time::Duration;

use mco_core::lifecycle::{Action, Health, Progress};
pub use mco_core::lifecycle::{RolledBackConfig, health::CHECK_INTERVAL};
use mco_host::{CheckResult, Host, Root, System};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use crate::{
    disk::{self, DiskError},
    execute::{self, ExecuteError},
    ledger,
};

/// Default time to prove healthy: enough for slow firmware, a full resync of the container engine
/// and a slow network.
pub const DEADLINE: Duration = Duration::from_mins(15);

const POLICY: &str = "/var/lib/machine-config-daemon/mco-confirm.json";
const ROLLED_BACK: &str = "/var/lib/machine-config-daemon/mco-taken-back.json";

/// The health checks after the next reboot. A check that did not pass before the reboot is skipped:
/// a kubelet without a health endpoint, or a check that fails anyway, says nothing about the new
/// config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmPolicy {
    deadline_seconds: u64,
    kubelet: bool,
    checks: bool,
    #[serde(default)]
    network: bool,
}

/// The results of the checks that need no cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineHealth {
    /// Health of the kubelet.
    pub kubelet: CheckResult,
    /// Result of the checks on the machine.
    pub checks: CheckResult,
    /// The machine's own network.
    pub network: CheckResult,
}

impl MachineHealth {
    /// Adds the reachability of the API server.
    #[must_use]
    pub fn with_cluster(self, cluster: CheckResult) -> Health {
        let Self { kubelet, checks, network } = self;
        Health { cluster, network, kubelet, checks }
    }
}

/// Requires that the next update is confirmed within `deadline`; zero disables the confirmation.
pub fn prepare<S: System>(host: &Host<S>, deadline: Duration) -> Result<(), DiskError> {
    let was_healthy = |answer: CheckResult| answer == CheckResult::Passed;
    let kubelet = !deadline.is_zero() && was_healthy(host.system.check_kubelet());
    let checks = !deadline.is_zero() && was_healthy(host.system.run_checks());
    let network = !deadline.is_zero() && was_healthy(network::check(&host.root));
    let deadline_seconds = deadline.as_secs();
    let policy = ConfirmPolicy { deadline_seconds, kubelet, checks, network };
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
    disk::undamaged(disk::parsed(root, POLICY))
}

impl ConfirmPolicy {
    /// Returns the time to prove healthy.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_seconds)
    }

    /// Runs the checks that need no cluster.
    pub fn check<S: System>(self, host: &Host<S>) -> MachineHealth {
        let checked = |wanted: bool, ask: &dyn Fn() -> CheckResult| {
            if wanted { ask() } else { CheckResult::Skipped }
        };
        let kubelet = checked(self.kubelet, &|| host.system.check_kubelet());
        let checks = checked(self.checks, &|| host.system.run_checks());
        let network = checked(self.network, &|| network::check(&host.root));
        MachineHealth { kubelet, checks, network }
    }
}

/// Runs the checks of the config that the machine has rebooted into.
pub fn check<S: System>(host: &Host<S>) -> Result<MachineHealth, DiskError> {
    let skipped = || CheckResult::Skipped;
    Ok(policy(&host.root)?.map_or_else(
        || MachineHealth { kubelet: skipped(), checks: skipped(), network: skipped() },
        |policy| policy.check(host),
    ))
}

/// Checks a kubelet that was healthy before the last update; skipped otherwise.
pub fn kubelet<S: System>(host: &Host<S>) -> Result<CheckResult, DiskError> {
    let was_healthy = policy(&host.root)?.is_some_and(|policy| policy.kubelet);
    Ok(if was_healthy { host.system.check_kubelet() } else { CheckResult::Skipped })
}

/// Returns the config that was rolled back last, if it is still refused.
pub fn rolled_back(root: &Root) -> Result<Option<RolledBackConfig>, DiskError> {
    disk::undamaged(disk::parsed(root, ROLLED_BACK))
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

/// Carries out a decision about the config that the machine has rebooted into.
///
/// Actions that decide nothing about such a config are left to the caller.
pub fn carry_out<S: System>(host: &mut Host<S>, action: &Action) -> Result<(), ExecuteError> {
    let Some((update, progress)) = ledger::open(&host.root)? else { return Ok(()) };
    let config = update.to.metadata.name.as_deref().unwrap_or_default();
    if *action == Action::Confirm {
        info!(config, "Confirmed config: the machine is healthy after its reboot");
        ledger::advance(&host.root, &Progress { confirmed: true, ..progress })?;
    } else if let Action::RecordWait(waited) = action {
        let waited = waited.as_secs();
        let deadline = policy(&host.root)?.map_or(0, |policy| policy.deadline_seconds);
        let seconds_left = deadline.saturating_sub(waited);
        warn!(config, seconds_left, "Machine is unhealthy; config will be rolled back");
        ledger::advance(&host.root, &Progress { waited, ..progress })?;
    } else if let Action::RollBack(why) = action {
        error!(config, reason = why, "Rolling back config");
        execute::roll_back_booted(host, &update, why)?;
    } else if *action == Action::Undo {
        let undone = execute::roll_back_failed(host, &update, &progress);
        if let (Err(ExecuteError::Undone(why)), Some(_)) = (&undone, &progress.back_in) {
            let config = update.from.metadata.name.as_deref().unwrap_or_default();
            warn!(config, reason = why, "Rolled back to the previous config");
            return Ok(());
        }
        undone?;
    }
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
    fn a_damaged_record_is_no_dead_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        for path in [POLICY, ROLLED_BACK, disk::CURRENT_CONFIG] {
            root.write(path, b"{\"", 0o600).unwrap();
        }
        let system = SimulatedSystem::open(&root).unwrap();
        let mut host = Host { root, system };
        let seen = crate::observe::disk_view(&mut host).unwrap();
        assert!(seen.current.is_none() && seen.rolled_back.is_none(), "{seen:?}");
        prepare(&host, DEADLINE).unwrap();
        assert_eq!(policy(&host.root).unwrap().unwrap().deadline(), DEADLINE, "written anew");
        assert_eq!(refusal(&host.root, "a", false).unwrap(), None);
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
        let checked = found.check(&host);
        assert_eq!((checked.kubelet, checked.checks), (CheckResult::Skipped, CheckResult::Skipped));
        let strict = ConfirmPolicy { kubelet: true, ..found };
        assert!(matches!(strict.check(&host).kubelet, CheckResult::Failed(_)));
        prepare(&host, Duration::ZERO).unwrap();
        assert_eq!(policy(&host.root).unwrap(), None, "zero disables the confirmation");
        set_deadline(&host.root, DEADLINE).unwrap();
        assert_eq!(policy(&host.root).unwrap(), None);
    }
}
