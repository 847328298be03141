//! Decides about config drift: report it, or repair it.
//!
//! Pure. The daemon detects the drift, this module decides, and the steps are executed like those
//! of an update. A repair never reboots and restarts nothing: it only writes what the config has
//! anyway. A path that keeps changing is left alone after a few repairs, because a fight with
//! another process over a file helps neither; the node is then Degraded, as without repairs.

use std::{collections::VecDeque, time::Duration};

use mco_api::annotation::DriftPolicy;

use crate::{
    drift::Drift,
    machine::{self, Machine},
    plan::Step,
};

/// Repairs of one path within [`WINDOW`] before the path is left alone.
const MAX_REPAIRS_PER_PATH: usize = 3;

/// Repairs of all paths within [`WINDOW`]: more is not drift but an administrator at work.
const MAX_REPAIRS: usize = 100;

/// Time for which a repair is remembered.
const WINDOW: Duration = Duration::from_hours(1);

/// Recent repairs and their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairHistory {
    repairs: VecDeque<(String, Duration)>,
}

/// The decision about drift.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairDecision {
    /// Leave the drift and report it.
    Leave(NotRepaired),
    /// Execute these steps, which repair these paths or units.
    Repair(Vec<Step>, Vec<String>),
}

/// The reason why drift is not repaired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRepaired {
    /// The pool's policy is to report drift only.
    #[error("the drift policy of the pool is not heal")]
    Policy,
    /// The drift needs an update.
    #[error("{0}: only an update can repair it")]
    NeedsUpdate(String),
    /// The path keeps changing.
    #[error("{0} was repaired {MAX_REPAIRS_PER_PATH} times within an hour and keeps changing")]
    KeepsChanging(String),
    /// Too many paths changed.
    #[error("more than {MAX_REPAIRS} paths changed within an hour")]
    TooManyChanges,
}

impl RepairHistory {
    /// Records repairs, and drops those outside the window.
    pub fn record(&mut self, subjects: &[String], now: Duration) {
        self.repairs.extend(subjects.iter().map(|subject| (subject.clone(), now)));
        while self.repairs.front().is_some_and(|(_, at)| *at + WINDOW < now) {
            self.repairs.pop_front();
        }
    }

    fn recent(&self, now: Duration) -> impl Iterator<Item = &str> {
        self.repairs.iter().filter(move |(_, at)| *at + WINDOW >= now).map(|(it, _)| it.as_str())
    }
}

/// Decides about drift from a config. `now` counts from any fixed time.
#[must_use]
pub fn decide(
    policy: &DriftPolicy,
    machine: &Machine,
    drifts: &[Drift],
    history: &RepairHistory,
    now: Duration,
) -> RepairDecision {
    if *policy != DriftPolicy::Heal {
        return RepairDecision::Leave(NotRepaired::Policy);
    }
    let (mut steps, mut subjects) = (Vec::new(), Vec::new());
    for drift in drifts {
        let Some((step, subject)) = repair(machine, drift) else {
            return RepairDecision::Leave(NotRepaired::NeedsUpdate(drift.to_string()));
        };
        if history.recent(now).filter(|repaired| *repaired == subject).count()
            >= MAX_REPAIRS_PER_PATH
        {
            return RepairDecision::Leave(NotRepaired::KeepsChanging(subject));
        }
        steps.push(step);
        subjects.push(subject);
    }
    if history.recent(now).count() + subjects.len() > MAX_REPAIRS {
        return RepairDecision::Leave(NotRepaired::TooManyChanges);
    }
    RepairDecision::Repair(steps, subjects)
}

/// Returns the step that repairs one difference, and the path or unit that it repairs.
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

    fn decided(drifts: &[Drift], history: &RepairHistory, minutes: u64) -> String {
        let now = Duration::from_mins(minutes);
        match decide(&DriftPolicy::Heal, &machine(), drifts, history, now) {
            RepairDecision::Leave(why) => why.to_string(),
            RepairDecision::Repair(steps, _) => {
                steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[test]
    fn repairs_write_what_the_config_has_and_nothing_else() {
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
                "missing expected kernel arguments: [x]: only an update can repair it",
            ),
        ];
        for (drifts, want) in cases {
            assert_eq!(decided(&drifts, &RepairHistory::default(), 0), want);
        }
        let left = decide(
            &DriftPolicy::Degrade,
            &machine(),
            &[contents("/etc/a")],
            &RepairHistory::default(),
            Duration::ZERO,
        );
        assert_eq!(left, RepairDecision::Leave(NotRepaired::Policy));
    }

    #[test]
    fn a_path_that_keeps_changing_is_left_alone_for_a_while() {
        let (a, b) = ("/etc/a".to_owned(), "/etc/b".to_owned());
        let mut history = RepairHistory::default();
        for minute in 0..3 {
            assert_eq!(decided(&[contents(&a)], &history, minute), "write /etc/a");
            history.record(std::slice::from_ref(&a), Duration::from_mins(minute));
        }
        let fight = "/etc/a was repaired 3 times within an hour and keeps changing";
        assert_eq!(decided(&[contents(&a)], &history, 3), fight);
        assert_eq!(decided(&[contents(&b)], &history, 3), "write /etc/b");
        assert_eq!(decided(&[contents(&a)], &history, 61), "write /etc/a");
    }

    #[test]
    fn too_many_changes_are_not_repaired() {
        let mut history = RepairHistory::default();
        let many: Vec<String> = (0..100).map(|number| format!("/etc/{number}")).collect();
        history.record(&many, Duration::ZERO);
        let flood = "more than 100 paths changed within an hour";
        assert_eq!(decided(&[contents("/etc/a")], &history, 1), flood);
        history.record(&[], Duration::from_hours(2));
        assert_eq!(history, RepairHistory::default(), "old repairs are dropped");
    }
}
