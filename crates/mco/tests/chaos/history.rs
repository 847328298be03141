//! Rules about every state of the nodes during a rollout.

use std::collections::BTreeMap;

use mco_testkit::nodes::{NodeSummaries, max_matching};

/// Number of nodes of a pool that may be unavailable at once, the default.
const MAX_UNAVAILABLE: usize = 1;

/// Returns the rule that a state of the history breaks.
pub(crate) fn check(history: &[NodeSummaries]) -> Result<(), String> {
    let busy = max_matching(history, |node| !node.current.is_empty() && node.is_updating());
    if busy.len() > MAX_UNAVAILABLE {
        return Err(format!("more than {MAX_UNAVAILABLE} unavailable at once: {busy:?}"));
    }
    let drains = completed_drains(history);
    if drains.is_empty() {
        return Err("no node was drained".to_owned());
    }
    match drains.iter().find(|(_, count)| **count > 1) {
        Some(((node, drain), count)) => Err(format!("{node} completed {drain} {count} times")),
        None => Ok(()),
    }
}

/// Counts how often each node completed each drain.
fn completed_drains(history: &[NodeSummaries]) -> BTreeMap<(String, String), usize> {
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for (name, node) in history.iter().flatten() {
        let before = last.insert(name, &node.last_drain);
        if before != Some(&node.last_drain) && node.last_drain.starts_with("drain-") {
            *counts.entry((name.clone(), node.last_drain.clone())).or_default() += 1;
        }
    }
    counts
}

#[test]
fn broken_rules_are_found() {
    use mco_testkit::nodes::NodeSummary;
    let node = |drain: &str, cordoned: bool| NodeSummary {
        current: "a".to_owned(),
        desired: "a".to_owned(),
        last_drain: drain.to_owned(),
        cordoned,
        ..NodeSummary::default()
    };
    let state = |first: NodeSummary, second: NodeSummary| -> NodeSummaries {
        [("n0".to_owned(), first), ("n1".to_owned(), second)].into()
    };
    let idle = || node("uncordon-a", false);
    let good = [state(node("drain-b", true), idle()), state(idle(), node("drain-b", true))];
    assert_eq!(check(&good), Ok(()));
    assert!(check(&[]).unwrap_err().contains("no node was drained"));
    let both = [state(node("drain-b", true), node("", true))];
    assert!(check(&both).unwrap_err().contains("unavailable"));
    let twice = [good[0].clone(), state(idle(), idle()), good[0].clone()];
    assert!(check(&twice).unwrap_err().contains("n0 completed drain-b 2 times"));
}
