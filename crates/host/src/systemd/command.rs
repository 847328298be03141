//! Names and time limits of the transient units that run commands of the machine.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Matches the units of all commands, of this process and of others.
pub(super) const PATTERN: &str = "machine-config-daemon-run-*.service";

/// Longer than pulling an image over a slow line.
pub(super) const LONG_LIMIT: Duration = Duration::from_hours(1);
/// Longer than any other command takes.
const SHORT_LIMIT: Duration = Duration::from_mins(10);

/// The unit that reboots the machine.
///
/// Compat: the name of the reference. It does not match [`PATTERN`], because no command waits for a
/// reboot.
pub(super) const REBOOT_UNIT: &str = "machine-config-daemon-reboot.service";
/// Longer than a reboot takes to begin, and shorter than the time after which it is tried again.
pub(super) const REBOOT_LIMIT: Duration = Duration::from_mins(5);

/// Verbs that pull images or build a deployment.
const LONG_VERBS: [&str; 8] =
    ["rebase", "update", "override", "kargs", "switch", "pull", "cp", "run"];

/// Returns the time after which a command counts as hung.
pub(super) fn limit(command: &[&str]) -> Duration {
    let is_long = command.get(1).is_some_and(|verb| LONG_VERBS.contains(verb));
    if is_long { LONG_LIMIT } else { SHORT_LIMIT }
}

/// The decision about commands that an earlier process started and that outlived it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OrphanDecision {
    /// None runs.
    Proceed,
    /// Wait for the end of these units.
    Wait(Vec<String>),
    /// These units do not end in time, although systemd kills a command after its own limit.
    GiveUp(Vec<String>),
}

/// Decides about the units of commands that run. Those of this process, which contain `own`, are no
/// obstacle.
pub(super) fn decide_orphans(
    running: Vec<String>,
    own: &str,
    waited: Duration,
    limit: Duration,
) -> OrphanDecision {
    let others: Vec<String> = running.into_iter().filter(|unit| !unit.contains(own)).collect();
    if others.is_empty() {
        OrphanDecision::Proceed
    } else if waited < limit {
        OrphanDecision::Wait(others)
    } else {
        OrphanDecision::GiveUp(others)
    }
}

/// Returns a name that no other unit has: not of a command that runs at the same time, and not of
/// one that an earlier process left.
pub(super) fn unit_name(command: &[&str]) -> String {
    let program = command.first().map_or("", |it| it.rsplit('/').next().unwrap_or(it));
    let fits = |letter: &char| letter.is_ascii_alphanumeric() || "-_".contains(*letter);
    let program: String = program.chars().filter(fits).collect();
    format!("machine-config-daemon-run-{program}-{}.service", unique())
}

/// Returns a name that no other unit has, for a reboot while the unit of an earlier one hangs.
pub(super) fn next_reboot_unit() -> String {
    format!("machine-config-daemon-reboot-{}.service", unique())
}

fn unique() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", process_token(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Returns a text that only the units of this process contain.
pub(super) fn process_token() -> &'static str {
    static TOKEN: OnceLock<String> = OnceLock::new();
    TOKEN.get_or_init(|| {
        // The kernel generates a new one for each read. The process id alone is not unique: the
        // daemon has the same one in each of its containers.
        let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let random: String = random.chars().filter(char::is_ascii_hexdigit).take(12).collect();
        format!("{random}{:x}", std::process::id())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_unit_and_a_limit_of_its_own() {
        let rebase = ["/usr/bin/rpm-ostree", "rebase", "--experimental", "x"];
        let names = [unit_name(&rebase), unit_name(&rebase)];
        assert_ne!(names[0], names[1]);
        for name in &names {
            assert!(name.starts_with("machine-config-daemon-run-rpm-ostree-"), "{name}");
            assert!(name.contains(process_token()) && name.ends_with(".service"), "{name}");
        }
        assert_eq!(limit(&rebase), LONG_LIMIT);
        assert_eq!(limit(&["/usr/bin/rpm-ostree", "status", "--json"]), SHORT_LIMIT);
        assert_eq!(limit(&["/usr/sbin/update-grub"]), SHORT_LIMIT);
    }
    #[test]
    fn commands_of_a_killed_process_are_awaited_up_to_the_limit() {
        let own = unit_name(&["/usr/bin/podman", "pull", "x"]);
        let orphan = "machine-config-daemon-run-rpm-ostree-0badc0ffee00-1.service".to_owned();
        let decide = |units: &[&String], waited| {
            let units = units.iter().map(|unit| (*unit).clone()).collect();
            decide_orphans(units, process_token(), waited, LONG_LIMIT)
        };
        assert_eq!(decide(&[], Duration::ZERO), OrphanDecision::Proceed);
        assert_eq!(decide(&[&own], LONG_LIMIT), OrphanDecision::Proceed);
        let both = [&own, &orphan];
        let early = LONG_LIMIT.saturating_sub(Duration::from_secs(1));
        assert_eq!(decide(&both, early), OrphanDecision::Wait(vec![orphan.clone()]));
        assert_eq!(decide(&both, LONG_LIMIT), OrphanDecision::GiveUp(vec![orphan.clone()]));
        // systemd kills every command after a limit that is no longer than the wait.
        for command in [["rpm-ostree", "rebase"], ["rpm-ostree", "status"]] {
            assert!(limit(&command) <= LONG_LIMIT);
        }
    }
}
