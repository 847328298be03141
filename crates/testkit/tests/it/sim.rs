//! The simulator's invariants hold in all scenarios, and each of them can fail.

use mco_api::annotation::Recovery;
use mco_core::rollout::{Cordon, PoolNodes, PoolPhase, PoolView, RolloutPlan};
use mco_sim::{Bug, Chooser, Faults, Flaw, HandshakePoint, Invariant, Millis, UserAction};
use mco_testkit::sim::{self, PRODUCTION, Scenario};

/// Number of seeds, unless the environment gives another number.
const SEEDS: u64 = 2_000;

#[test]
#[expect(clippy::disallowed_methods, reason = "`make soak` sets the number of seeds")]
fn the_invariants_hold_in_every_scenario() {
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

/// Builds a scenario of three nodes, a bad change, and its revert ten minutes later.
fn reverted(flaw: Flaw, max_unavailable: i32) -> Scenario {
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
        blocked: false,
        interruption: None,
    }
}

fn target(config: &str) -> UserAction {
    UserAction::Target { pool: "worker".to_owned(), config: config.to_owned() }
}

/// Builds a scenario without faults in which one worker, whose drain a budget may block for ever,
/// gets the config `first`.
fn one_worker(blocked: bool) -> Scenario {
    Scenario {
        seed: 1,
        workers: if blocked { 1 } else { 2 },
        others: 0,
        max_unavailable: 1,
        pods: 1,
        flaw: None,
        reboots: true,
        script: vec![(MINUTE, target("first"))],
        faults: Faults::default(),
        blocked,
        interruption: None,
    }
}

/// Runs a scenario with several seeds, which give the watches other delays.
fn converges(scenario: &Scenario) {
    for seed in 1..=8 {
        let scenario = Scenario { seed, ..scenario.clone() };
        let outcome = sim::check_with(&scenario, PRODUCTION, None);
        assert_eq!(outcome.as_ref().err(), None, "{scenario}");
        assert!(outcome.is_ok_and(|report| report.is_complete()), "{scenario}");
    }
}

#[test]
fn every_point_of_the_handshake_survives_a_revert_a_new_config_restarts_and_requests() {
    for point in HandshakePoint::ALL {
        for delay in [0, 3, 50, 150, 500, 5_000] {
            for action in [
                target("old"),
                target("second"),
                UserAction::RestartController,
                UserAction::RestartDaemon(0),
                UserAction::Recover(0, Recovery::Forget),
                UserAction::Recover(0, Recovery::Force),
                UserAction::Recover(0, Recovery::Abandon),
            ] {
                let mut scenario = one_worker(false);
                scenario.interruption = Some((point, delay, action));
                converges(&scenario);
            }
        }
    }
}

// covers: DRN-2
#[test]
fn a_revert_of_a_blocked_drain_takes_the_cordon_back_at_every_moment() {
    for point in [HandshakePoint::DrainRequested, HandshakePoint::Cordoned] {
        for delay in [0, 3, 50, 150, 500, 5_000, 10 * MINUTE] {
            let mut scenario = one_worker(true);
            scenario.interruption = Some((point, delay, target("old")));
            converges(&scenario);
        }
    }
    // A revert that is itself reverted, and again, at all distances.
    for delay in [1, 20, 100, 250, 1_000, 5_000, 2 * MINUTE] {
        let mut scenario = one_worker(true);
        for (number, config) in ["old", "first", "old", "second", "old"].iter().enumerate() {
            let number = Millis::try_from(number).unwrap();
            scenario.script.push((2 * MINUTE + number * delay, target(config)));
        }
        converges(&scenario);
    }
}

/// Runs the scenario with maxUnavailable from one to three and checks that broken nodes are
/// repaired.
fn repairs(flaw: Flaw) {
    for max_unavailable in 1..=3 {
        let scenario = reverted(flaw, max_unavailable);
        let report =
            sim::check_with(&scenario, PRODUCTION, None).expect("no invariant is violated");
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

/// Starts all nodes at once.
fn start_all(fleet: &mut PoolNodes, pool: &PoolView) -> RolloutPlan {
    if pool.phase != PoolPhase::Active {
        return plan(pool, Vec::new());
    }
    let waits = fleet.nodes().filter(|node| !node.is_targeted(&pool.target) && node.is_ready());
    let names = waits.map(|node| node.name.clone()).collect();
    plan(pool, names)
}

/// Starts no node.
fn start_none(_: &mut PoolNodes, pool: &PoolView) -> RolloutPlan {
    plan(pool, Vec::new())
}

/// Ignores that a pool is paused.
fn ignore_pause(fleet: &mut PoolNodes, pool: &PoolView) -> RolloutPlan {
    fleet.select(&PoolView { phase: PoolPhase::Active, ..pool.clone() })
}

/// Ignores cordons.
fn ignore_cordons(fleet: &mut PoolNodes, pool: &PoolView) -> RolloutPlan {
    let mut chosen = fleet.select(pool);
    let waits = fleet.nodes().find(|node| !node.is_targeted(&pool.target) && !node.is_ready());
    if let (Some(node), PoolPhase::Active) = (waits, pool.phase) {
        chosen.starts.push(node.name.clone());
    }
    chosen
}

/// Retargets every unavailable node, regardless of the number of updating ones.
fn ignore_capacity(fleet: &mut PoolNodes, pool: &PoolView) -> RolloutPlan {
    let mut chosen = fleet.select(pool);
    let down = fleet.nodes().filter(|node| {
        !node.is_targeted(&pool.target) && !node.is_ready() && node.cordon != Cordon::User
    });
    if pool.phase == PoolPhase::Active {
        chosen.starts.extend(down.map(|node| node.name.clone()));
    }
    chosen
}

/// Selects like the reference: only available nodes, each for a slot.
fn reference(fleet: &mut PoolNodes, pool: &PoolView) -> RolloutPlan {
    let mut chosen = fleet.select(pool);
    let is_ready =
        |name: &String| fleet.node(name).is_some_and(mco_core::rollout::NodeView::is_ready);
    chosen.starts.retain(|name| !chosen.repairs.contains(name) || is_ready(name));
    chosen
}

/// Asserts that one of the seeds violates the invariant.
fn assert_violated(chooser: Chooser, bug: Option<Bug>, rule: Invariant) {
    let hit = (0..300).find_map(|seed| {
        let report = mco_sim::run(Scenario::of(seed).setup(chooser, bug));
        report.violation.filter(|violation| violation.rule == rule)
    });
    assert!(hit.is_some(), "no seed violated the invariant: {rule}");
}

#[test]
fn each_invariant_detects_its_fault() {
    assert_violated(start_all, None, Invariant::MaxUnavailable);
    assert_violated(ignore_capacity, None, Invariant::MaxUnavailable);
    assert_violated(ignore_pause, None, Invariant::PausedMeansPaused);
    assert_violated(ignore_cordons, None, Invariant::UserCordon);
    assert_violated(start_none, None, Invariant::Converges);
    assert_violated(reference, None, Invariant::RevertRepairs);
    assert_violated(PRODUCTION, Some(Bug::NoDrain), Invariant::DrainBeforeReboot);
    assert_violated(PRODUCTION, Some(Bug::NoUncordon), Invariant::NoCordonLeft);
    let mut reverted = one_worker(true);
    reverted.interruption = Some((HandshakePoint::Cordoned, 5_000, target("old")));
    let report = mco_sim::run(reverted.setup(PRODUCTION, Some(Bug::OldAnswer)));
    let violation = report.violation.expect("the old answer leaves the cordon");
    assert_eq!(violation.rule, Invariant::NoCordonLeft);
    // The user cordons the node while it applies a config that needs no drain.
    let mut cordoned = Scenario { workers: 1, reboots: false, ..one_worker(false) };
    cordoned.script.push((MINUTE + 10_000, UserAction::Cordon(0)));
    let mut setup = cordoned.setup(PRODUCTION, Some(Bug::AnyCordon));
    let same = setup.configs["old"].clone();
    setup.configs.insert("first".to_owned(), same);
    let report = mco_sim::run(setup);
    let violation = report.violation.expect("the controller removes the user's cordon");
    assert_eq!(violation.rule, Invariant::UserCordonKept);
}

#[test]
fn a_failing_run_names_its_seed_and_a_small_trace() {
    let scenario = reverted(Flaw::NotReadyAtBoot, 1);
    let text = sim::check_with(&scenario, reference, None).unwrap_err();
    assert!(text.starts_with("seed 1: a node that the change broke was not repaired"), "{text}");
    assert!(text.contains("smallest: seed 1: 1 workers"), "{text}");
    assert!(text.contains("booted first"), "{text}");
}
