//! Whether the config that a machine has rebooted into is kept.
//!
//! A config is kept once the machine proves healthy: its kubelet answers where it is to run one, the
//! checks that people put on it pass, and the cluster can be reached. One that does not within its time
//! is taken back: everything is put back as it was, the machine reboots once more, and the node says
//! why. The same config is not tried again until another is wanted or somebody asks for it.
//!
//! The daemon decides. Where the config keeps the daemon itself from starting, a unit of the machine does
//! (`standby`).

mod settle;
pub mod standby;

use std::time::Duration;

use mco_host::{Answer, Host, Root, System};
use serde::{Deserialize, Serialize};

use crate::disk::{self, DiskError};

pub use self::settle::{Probe, Settled, settle};

/// Long enough for slow firmware, a full resync of the container engine and a sleepy network.
pub const DEADLINE: Duration = Duration::from_mins(15);

/// How often a machine that is not healthy is asked again.
const PAUSE: Duration = Duration::from_secs(5);

const POLICY: &str = "/etc/machine-config-daemon/mco-confirm.json";
const TAKEN_BACK: &str = "/etc/machine-config-daemon/mco-taken-back.json";

/// What a machine answered when it was asked whether it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether the cluster can be reached; not asked where there is none.
    pub cluster: Answer,
    /// Whether the kubelet is well.
    pub kubelet: Answer,
    /// Whether the checks on the machine pass.
    pub checks: Answer,
}

/// What becomes of the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is kept.
    Keep,
    /// That is open; to be asked again after so long.
    Wait(Duration),
    /// It is taken back, and why.
    TakeBack(String),
}

/// A config that was taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// The config.
    pub config: String,
    /// Why.
    pub why: String,
}

/// What is asked of a machine after its next reboot. Nobody is asked who gave no good answer before it
/// either: a kubelet that has no place to answer at, or a check that fails anyway, says nothing of the
/// new config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    deadline_seconds: u64,
    kubelet: bool,
    checks: bool,
}

/// Decides about a config whose machine has been up for `waited`.
#[must_use]
pub fn decide(health: &Health, waited: Duration, deadline: Duration) -> Verdict {
    let faults = faults(health);
    if faults.is_empty() {
        return Verdict::Keep;
    }
    match deadline.checked_sub(waited).filter(|left| !left.is_zero()) {
        Some(left) => Verdict::Wait(left.min(PAUSE)),
        None => Verdict::TakeBack(faults.join("; ")),
    }
}

fn faults(health: &Health) -> Vec<String> {
    let mut faults = Vec::new();
    for answer in [&health.kubelet, &health.checks] {
        if let Answer::No(why) = answer {
            faults.push(why.clone());
        }
    }
    // Checks of the machine's own count for a cluster that cannot be reached: it may be the cluster
    // that is down.
    if let (Answer::No(why), Answer::NotAsked | Answer::No(_)) = (&health.cluster, &health.checks) {
        faults.push(why.clone());
    }
    faults
}

/// Has the next update confirmed within this time, or not at all.
pub fn prepare<S: System>(host: &Host<S>, deadline: Duration) -> Result<(), DiskError> {
    let was_well = |answer: Answer| answer == Answer::Yes;
    let kubelet = !deadline.is_zero() && was_well(host.system.kubelet());
    let checks = !deadline.is_zero() && was_well(host.system.checks());
    let policy = Policy { deadline_seconds: deadline.as_secs(), kubelet, checks };
    if deadline.is_zero() {
        host.root.remove(POLICY)?;
    } else if self::policy(&host.root)? != Some(policy) {
        disk::write(&host.root, POLICY, &policy)?;
    }
    Ok(())
}

/// Gives the machine another time to prove healthy, where it has to at all.
pub fn set_deadline(root: &Root, deadline: Duration) -> Result<(), DiskError> {
    match policy(root)? {
        Some(policy) => {
            disk::write(root, POLICY, &Policy { deadline_seconds: deadline.as_secs(), ..policy })
        }
        None => Ok(()),
    }
}

/// What is asked of the machine; none where that is nothing.
pub fn policy(root: &Root) -> Result<Option<Policy>, DiskError> {
    disk::parsed(root, POLICY)
}

impl Policy {
    /// How long the machine has to prove healthy.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.deadline_seconds)
    }

    /// What the machine itself answers.
    fn ask<S: System>(self, host: &Host<S>) -> (Answer, Answer) {
        let asked = |wanted: bool, ask: &dyn Fn() -> Answer| {
            if wanted { ask() } else { Answer::NotAsked }
        };
        let kubelet = asked(self.kubelet, &|| host.system.kubelet());
        (kubelet, asked(self.checks, &|| host.system.checks()))
    }
}

/// Whether a kubelet is well that was so before the last update; others are not asked.
pub(crate) fn kubelet<S: System>(host: &Host<S>) -> Result<Answer, DiskError> {
    let was_well = policy(&host.root)?.is_some_and(|policy| policy.kubelet);
    Ok(if was_well { host.system.kubelet() } else { Answer::NotAsked })
}

/// The config that was taken back last, if it is still refused.
pub fn taken_back(root: &Root) -> Result<Option<TakenBack>, DiskError> {
    disk::parsed(root, TAKEN_BACK)
}

/// Refuses a config that was taken back.
pub(crate) fn refuse_from_now_on(root: &Root, back: &TakenBack) -> Result<(), DiskError> {
    disk::write(root, TAKEN_BACK, back)
}

/// Lets a config be tried again that was taken back.
pub fn allow_again(root: &Root) -> Result<(), DiskError> {
    root.remove(TAKEN_BACK)?;
    Ok(())
}

/// Why an update to `config` is not tried; none lets it go ahead.
///
/// Forgets a config that was taken back once another is wanted, or somebody asks for it.
pub fn refusal(
    root: &Root,
    config: &str,
    is_asked_for: bool,
) -> Result<Option<TakenBack>, DiskError> {
    let Some(back) = taken_back(root)? else { return Ok(None) };
    if back.config == config && !is_asked_for {
        return Ok(Some(back));
    }
    allow_again(root)?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use mco_host::SimulatedSystem;

    use super::*;

    #[test]
    fn a_config_is_kept_once_its_machine_is_healthy_and_taken_back_when_its_time_is_up() {
        let no = |why: &str| Answer::No(why.to_owned());
        let cases = [
            (Answer::Yes, Answer::Yes, Answer::NotAsked, 0, "keep"),
            (Answer::Yes, Answer::NotAsked, Answer::NotAsked, 9999, "keep"),
            (Answer::NotAsked, Answer::NotAsked, Answer::NotAsked, 0, "keep"),
            (no("api"), Answer::Yes, Answer::NotAsked, 0, "wait 5"),
            (no("api"), Answer::Yes, Answer::NotAsked, 897, "wait 3"),
            (no("api"), Answer::Yes, Answer::NotAsked, 900, "back: api"),
            (no("api"), Answer::Yes, Answer::Yes, 900, "keep"),
            (no("api"), Answer::Yes, no("check"), 901, "back: check; api"),
            (Answer::Yes, no("kubelet"), Answer::Yes, 10, "wait 5"),
            (Answer::Yes, no("kubelet"), Answer::Yes, 900, "back: kubelet"),
            (Answer::NotAsked, Answer::NotAsked, no("check"), 900, "back: check"),
        ];
        for (cluster, kubelet, checks, waited, want) in cases {
            let health = Health { cluster, kubelet, checks };
            let found = match decide(&health, Duration::from_secs(waited), DEADLINE) {
                Verdict::Keep => "keep".to_owned(),
                Verdict::Wait(pause) => format!("wait {}", pause.as_secs()),
                Verdict::TakeBack(why) => format!("back: {why}"),
            };
            assert_eq!(found, want, "{health:?} after {waited}");
        }
    }

    #[test]
    fn a_config_that_was_taken_back_is_refused_until_another_is_wanted_or_somebody_asks() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let back = TakenBack { config: "a".to_owned(), why: "x".to_owned() };
        assert_eq!(refusal(&root, "a", false).unwrap(), None);
        refuse_from_now_on(&root, &back).unwrap();
        assert_eq!(refusal(&root, "a", false).unwrap(), Some(back.clone()));
        assert_eq!(refusal(&root, "b", false).unwrap(), None);
        assert_eq!(refusal(&root, "a", false).unwrap(), None, "forgotten since");
        refuse_from_now_on(&root, &back).unwrap();
        assert_eq!(refusal(&root, "a", true).unwrap(), None);
        assert_eq!(taken_back(&root).unwrap(), None);
    }

    #[test]
    fn what_is_asked_of_a_machine_is_on_its_disk() {
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
        // A kubelet that says nothing before an update need not say anything after it.
        host.system.journal().fail("kubelet healthz");
        assert_eq!(found.ask(&host), (Answer::NotAsked, Answer::NotAsked));
        let strict = Policy { kubelet: true, ..found };
        assert!(matches!(strict.ask(&host), (Answer::No(_), Answer::NotAsked)));
        prepare(&host, Duration::ZERO).unwrap();
        assert_eq!(policy(&host.root).unwrap(), None, "no time is no check");
        set_deadline(&host.root, DEADLINE).unwrap();
        assert_eq!(policy(&host.root).unwrap(), None);
    }
}
