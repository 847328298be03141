//! Shrinks a failing scenario.

use mco_sim::{Bug, Chooser, Fault, Invariant, run};

use super::Scenario;

/// Returns the smallest scenario found that violates the same invariant.
pub(super) fn smallest(
    scenario: &Scenario,
    rule: Invariant,
    chooser: Chooser,
    bug: Option<Bug>,
) -> Scenario {
    let breaks = |scenario: &Scenario| {
        run(scenario.setup(chooser, bug)).violation.is_some_and(|violation| violation.rule == rule)
    };
    let mut best = scenario.clone();
    while let Some(smaller) = smaller(&best).into_iter().find(breaks) {
        best = smaller;
    }
    best
}

/// Returns all scenarios with one element less.
fn smaller(scenario: &Scenario) -> Vec<Scenario> {
    let mut found = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut other = scenario.clone();
        change(&mut other);
        if other != *scenario {
            found.push(other);
        }
    };
    with(&|s| s.others = 0);
    with(&|s| s.workers = s.workers.div_ceil(2));
    with(&|s| s.workers = s.workers.saturating_sub(1).max(1));
    with(&|s| s.pods = 0);
    with(&|s| s.flaw = None);
    with(&|s| s.interruption = None);
    with(&|s| s.max_unavailable = 1);
    for (fault, _, _) in Fault::ALL {
        with(&|s| s.faults.set(fault, 0));
    }
    // The last two actions bring every pool to a config that all nodes can apply.
    for index in 0..scenario.script.len().saturating_sub(2) {
        with(&|s| drop(s.script.remove(index)));
    }
    found
}
