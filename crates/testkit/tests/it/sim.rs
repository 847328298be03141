//! The rules hold whatever happens, and each of them can fail.

use mco_core::rollout::{Cordon, Fleet, Phase, PoolView, RolloutPlan};
use mco_sim::{Action, Bug, Chooser, Faults, Flaw, Millis, Rule};
use mco_testkit::sim::{self, REAL, Scenario};

/// How many seeds are run, unless the environment names another number.
const SEEDS: u64 = 2_000;

#[test]
#[expect(clippy::disallowed_methods, reason = "`make soak` asks for more seeds")]
fn the_rules_hold_in_every_scenario() {
    let more = std::env::var("MCO_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let seeds: u64 = more.unwrap_or(SEEDS);
    let half = |from: u64| {
        move || {
            (from..seeds)
                .step_by(2)
                .filter_map(|seed| sim::check(seed).err())
                .take(3)
                .collect::<Vec<_>>()
        }
    };
    let failures: Vec<String> = std::thread::scope(|scope| {
        let halves = [scope.spawn(half(0)), scope.spawn(half(1))];
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(sim::check(seed), sim::check(seed));
    }
}

const MINUTE: Millis = 60_000;

/// Three nodes, a bad change, and its revert ten minutes later.
fn reverted(flaw: Flaw, max_unavailable: i32) -> Scenario {
    let target =
        |config: &str| Action::Target { pool: "worker".to_owned(), config: config.to_owned() };
    Scenario {
        seed: 1,
        workers: 3,
        others: 0,
        max_unavailable,
        pods: 1,
        flaw: Some(flaw),
        reboots: true,
        script: vec![(MINUTE, target("first")), (11 * MINUTE, target("old"))],
        faults: Faults::default(),
    }
}

/// Runs the four ways in which a change breaks a node, with room for one to three nodes.
fn repairs(flaw: Flaw) {
    for max_unavailable in 1..=3 {
        let scenario = reverted(flaw, max_unavailable);
        let report = sim::check_with(&scenario, REAL, None).expect("no rule is broken");
        assert!(report.is_complete(), "{report:#?}");
        let broken = |entry: &mco_sim::Entry| {
            entry.what.contains("not ready any more")
                || entry.what.contains("failed to apply first")
                || entry.what.contains("booted first")
        };
        assert!(report.timeline.iter().any(broken), "the change broke a node");
        let repaired = |entry: &mco_sim::Entry| entry.what == "retargeted without a slot to old";
        assert!(report.timeline.iter().any(repaired), "{:#?}", report.timeline);
    }
}

#[test]
fn a_node_that_is_not_ready_after_rebooting_into_the_change_is_repaired() {
    repairs(Flaw::NotReadyAtBoot);
}

#[test]
fn a_node_that_completed_the_change_and_then_went_down_is_repaired() {
    repairs(Flaw::NotReadyLater);
}

#[test]
fn a_node_that_failed_after_its_drain_is_repaired() {
    repairs(Flaw::FailsAfterDrain);
}

#[test]
fn a_node_that_failed_before_its_drain_is_repaired() {
    repairs(Flaw::FailsBeforeDrain);
}

fn plan(pool: &PoolView, starts: Vec<String>) -> RolloutPlan {
    RolloutPlan {
        target: pool.target.clone(),
        capacity: starts.len(),
        starts,
        repairs: Vec::new(),
        labels: Vec::new(),
        deferred: None,
        holds: Vec::new(),
    }
}

/// Tells everybody at once.
fn everybody(fleet: &mut Fleet, pool: &PoolView) -> RolloutPlan {
    if pool.phase != Phase::Active {
        return plan(pool, Vec::new());
    }
    let waits = fleet.nodes().filter(|node| !node.is_at(&pool.target) && node.is_ready());
    let names = waits.map(|node| node.name.clone()).collect();
    plan(pool, names)
}

/// Tells nobody.
fn nobody(_: &mut Fleet, pool: &PoolView) -> RolloutPlan {
    plan(pool, Vec::new())
}

/// Does not know of pauses.
fn restless(fleet: &mut Fleet, pool: &PoolView) -> RolloutPlan {
    fleet.choose(&PoolView { phase: Phase::Active, ..pool.clone() })
}

/// Does not look at cordons.
fn rude(fleet: &mut Fleet, pool: &PoolView) -> RolloutPlan {
    let mut chosen = fleet.choose(pool);
    let waits = fleet.nodes().find(|node| !node.is_at(&pool.target) && !node.is_ready());
    if let (Some(node), Phase::Active) = (waits, pool.phase) {
        chosen.starts.push(node.name.clone());
    }
    chosen
}

/// Tells every node that is out of service, however many are under way.
fn hasty(fleet: &mut Fleet, pool: &PoolView) -> RolloutPlan {
    let mut chosen = fleet.choose(pool);
    let down = fleet.nodes().filter(|node| {
        !node.is_at(&pool.target) && !node.is_ready() && node.cordon != Cordon::Theirs
    });
    if pool.phase == Phase::Active {
        chosen.starts.extend(down.map(|node| node.name.clone()));
    }
    chosen
}

/// What the reference does: only nodes in service, each for a slot.
fn reference(fleet: &mut Fleet, pool: &PoolView) -> RolloutPlan {
    let mut chosen = fleet.choose(pool);
    let is_ready =
        |name: &String| fleet.node(name).is_some_and(mco_core::rollout::NodeView::is_ready);
    chosen.starts.retain(|name| !chosen.repairs.contains(name) || is_ready(name));
    chosen
}

/// The rule that some of the seeds see broken.
fn caught(chooser: Chooser, bug: Option<Bug>, rule: Rule) {
    let hit = (0..300).find_map(|seed| {
        let report = mco_sim::run(Scenario::of(seed).setup(chooser, bug));
        report.violation.filter(|violation| violation.rule == rule)
    });
    assert!(hit.is_some(), "nothing broke the rule: {rule}");
}

#[test]
fn each_rule_catches_the_fault_it_is_there_for() {
    caught(everybody, None, Rule::MaxUnavailable);
    caught(hasty, None, Rule::MaxUnavailable);
    caught(restless, None, Rule::PausedMeansPaused);
    caught(rude, None, Rule::TheirCordon);
    caught(nobody, None, Rule::Converges);
    caught(reference, None, Rule::RevertRepairs);
    caught(REAL, Some(Bug::NoDrain), Rule::DrainBeforeReboot);
    caught(REAL, Some(Bug::NoUncordon), Rule::NoCordonLeft);
}

#[test]
fn a_failing_run_names_its_seed_and_a_small_trace() {
    let scenario = reverted(Flaw::NotReadyAtBoot, 1);
    let text = sim::check_with(&scenario, reference, None).unwrap_err();
    assert!(text.starts_with("seed 1: a node that the change broke was not repaired"), "{text}");
    assert!(text.contains("smallest: seed 1: 1 workers"), "{text}");
    assert!(text.contains("booted first"), "{text}");
}
