//! What to do about a disk that is not as its config says: leave it and say so, or put it right.
//!
//! Pure. The daemon detects, this decides, and the steps that it names are carried out like those of
//! an update. Healing never reboots and restarts nothing: it only writes what the config has anyway. A
//! path that somebody keeps changing back is left alone after a few times, for two who fight over a
//! file help nobody, and the node says that it is degraded as it would have without healing.

use std::{collections::VecDeque, time::Duration};

use mco_api::annotation::DriftPolicy;
use mco_core::{
    drift::Drift,
    machine::{self, Machine},
    plan::Step,
};

/// How often one path is put right within [`WINDOW`] before it is left alone.
const TIMES: usize = 3;

/// How many paths are put right within [`WINDOW`]: more is not drift but somebody at work.
const ALTOGETHER: usize = 100;

/// How long a repair is remembered.
const WINDOW: Duration = Duration::from_hours(1);

/// What was put right, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    healed: VecDeque<(String, Duration)>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Leave it, and say so.
    Leave(Why),
    /// Take these steps; the second part is what they are about.
    Heal(Vec<Step>, Vec<String>),
}

/// Why drift is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The pool wants it so.
    #[error("the pool's policy is to leave it")]
    Policy,
    /// Only an update could put it right.
    #[error("{0}: it cannot be put right without an update")]
    Beyond(String),
    /// Somebody keeps changing it.
    #[error("{0} was put right {TIMES} times within an hour and keeps changing")]
    KeepsChanging(String),
    /// Too much changes.
    #[error("more than {ALTOGETHER} paths changed within an hour")]
    TooMuch,
}

impl History {
    /// Notes what was put right.
    pub fn note(&mut self, subjects: &[String], now: Duration) {
        self.healed.extend(subjects.iter().map(|subject| (subject.clone(), now)));
        while self.healed.front().is_some_and(|(_, at)| *at + WINDOW < now) {
            self.healed.pop_front();
        }
    }

    fn recent(&self, now: Duration) -> impl Iterator<Item = &str> {
        self.healed.iter().filter(move |(_, at)| *at + WINDOW >= now).map(|(it, _)| it.as_str())
    }
}

/// Decides what to do about these differences from a config. `now` counts from any fixed moment.
#[must_use]
pub fn decide(
    policy: &DriftPolicy,
    machine: &Machine,
    drifts: &[Drift],
    history: &History,
    now: Duration,
) -> Decision {
    if *policy != DriftPolicy::Heal {
        return Decision::Leave(Why::Policy);
    }
    let (mut steps, mut subjects) = (Vec::new(), Vec::new());
    for drift in drifts {
        let Some((step, subject)) = repair(machine, drift) else {
            return Decision::Leave(Why::Beyond(drift.to_string()));
        };
        if history.recent(now).filter(|healed| *healed == subject).count() >= TIMES {
            return Decision::Leave(Why::KeepsChanging(subject));
        }
        steps.push(step);
        subjects.push(subject);
    }
    if history.recent(now).count() + subjects.len() > ALTOGETHER {
        return Decision::Leave(Why::TooMuch);
    }
    Decision::Heal(steps, subjects)
}

/// The step that puts one difference right, and what it is about.
fn repair(machine: &Machine, drift: &Drift) -> Option<(Step, String)> {
    match drift {
        Drift::Contents(path)
        | Drift::Mode { path, .. }
        | Drift::Owner { path, .. }
        | Drift::Stat { path, .. }
        | Drift::MaskMissing { path, .. }
        | Drift::NotMasked { path, .. } => Some((rewrite(machine, path)?, path.clone())),
        Drift::Enablement { unit, want: true, .. } => {
            Some((Step::EnableUnit(unit.clone()), unit.clone()))
        }
        Drift::Enablement { unit, want: false, .. } => {
            Some((Step::DisableUnit(unit.clone()), unit.clone()))
        }
        Drift::Unusable(_) | Drift::OsImage { .. } | Drift::KernelArguments(_) => None,
    }
}

fn rewrite(machine: &Machine, path: &str) -> Option<Step> {
    if machine.file(path).is_some() {
        return Some(Step::WriteFile(path.to_owned()));
    }
    for unit in &machine.config.systemd.units {
        if machine::unit_path(&unit.name) == path {
            let name = unit.name.clone();
            let masked = unit.mask == Some(true);
            return Some(if masked { Step::MaskUnit(name) } else { Step::WriteUnit(name) });
        }
        for dropin in &unit.dropins {
            if machine::dropin_path(&unit.name, &dropin.name) == path {
                let (unit, dropin) = (unit.name.clone(), dropin.name.clone());
                return Some(Step::WriteDropin { unit, dropin });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use mco_api::MachineConfig;

    use super::*;

    fn machine() -> Machine {
        let config: MachineConfig = serde_json::from_str(
            r#"{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "a"}, "spec": {"config": {"ignition": {"version": "3.5.0"},
            "storage": {"files": [{"path": "/etc/a"}, {"path": "/etc/b"}]},
            "systemd": {"units": [
                {"name": "u.service", "contents": "[Unit]", "enabled": true,
                 "dropins": [{"name": "d.conf", "contents": "x"}]},
                {"name": "m.service", "contents": "[Unit]", "mask": true}]}}}}"#,
        )
        .unwrap();
        Machine::read(&config).unwrap()
    }

    fn contents(path: &str) -> Drift {
        Drift::Contents(path.to_owned())
    }

    fn decided(drifts: &[Drift], history: &History, minutes: u64) -> String {
        let now = Duration::from_mins(minutes);
        match decide(&DriftPolicy::Heal, &machine(), drifts, history, now) {
            Decision::Leave(why) => why.to_string(),
            Decision::Heal(steps, _) => {
                steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[test]
    fn what_the_config_has_is_written_again_and_nothing_else() {
        let enabled =
            |want| Drift::Enablement { unit: "u.service".to_owned(), want, found: String::new() };
        let masked = Drift::NotMasked {
            path: "/etc/systemd/system/m.service".to_owned(),
            found: String::new(),
        };
        let cases = [
            (vec![contents("/etc/a"), contents("/etc/b")], "write /etc/a, write /etc/b"),
            (vec![contents("/etc/systemd/system/u.service")], "write unit u.service"),
            (
                vec![contents("/etc/systemd/system/u.service.d/d.conf")],
                "write drop-in d.conf of u.service",
            ),
            (vec![masked], "mask m.service"),
            (vec![enabled(true)], "enable u.service"),
            (vec![enabled(false)], "disable u.service"),
            (
                vec![contents("/etc/a"), Drift::KernelArguments(vec!["x".to_owned()])],
                "missing expected kernel arguments: [x]: it cannot be put right without an update",
            ),
        ];
        for (drifts, want) in cases {
            assert_eq!(decided(&drifts, &History::default(), 0), want);
        }
        let left = decide(
            &DriftPolicy::Degrade,
            &machine(),
            &[contents("/etc/a")],
            &History::default(),
            Duration::ZERO,
        );
        assert_eq!(left, Decision::Leave(Why::Policy));
    }

    #[test]
    fn a_path_that_keeps_changing_is_left_alone_for_a_while() {
        let (a, b) = ("/etc/a".to_owned(), "/etc/b".to_owned());
        let mut history = History::default();
        for minute in 0..3 {
            assert_eq!(decided(&[contents(&a)], &history, minute), "write /etc/a");
            history.note(std::slice::from_ref(&a), Duration::from_mins(minute));
        }
        let fight = "/etc/a was put right 3 times within an hour and keeps changing";
        assert_eq!(decided(&[contents(&a)], &history, 3), fight);
        assert_eq!(decided(&[contents(&b)], &history, 3), "write /etc/b");
        assert_eq!(decided(&[contents(&a)], &history, 61), "write /etc/a");
    }

    #[test]
    fn a_flood_is_left_alone() {
        let mut history = History::default();
        let many: Vec<String> = (0..100).map(|number| format!("/etc/{number}")).collect();
        history.note(&many, Duration::ZERO);
        let flood = "more than 100 paths changed within an hour";
        assert_eq!(decided(&[contents("/etc/a")], &history, 1), flood);
        history.note(&[], Duration::from_hours(2));
        assert_eq!(history, History::default(), "what is old is forgotten");
    }
}
