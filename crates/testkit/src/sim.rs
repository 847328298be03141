//! Scenarios for the simulator: generated from seeds, and shrunk when they fail.
//!
//! A scenario is a small cluster with a change (often one that breaks nodes and is reverted), users
//! who pause and cordon meanwhile, and faults. [`check`] runs a scenario. If an invariant is
//! violated, the error contains the invariant, the seed and the smallest scenario found that
//! violates it too.

mod fleet;
mod shrink;

use std::fmt;

use mco_core::rollout::PoolNodes;
use mco_sim::{
    Bug, Chooser, Fault, Faults, Flaw, HandshakePoint, Millis, Report, SeededRng, Setup,
    UserAction, clock, run,
};

/// The production decision function.
pub const PRODUCTION: Chooser = PoolNodes::select;

const MINUTE: Millis = 60_000;

/// Time after which no more faults occur.
const CALM: Millis = 90 * MINUTE;

/// A cluster and the events that happen to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Seed of the random choices.
    pub seed: u64,
    /// Number of workers.
    pub workers: usize,
    /// Number of nodes in a second pool.
    pub others: usize,
    /// The worker pool's maxUnavailable.
    pub max_unavailable: i32,
    /// Number of pods per node.
    pub pods: usize,
    /// Flaw of the first change.
    pub flaw: Option<Flaw>,
    /// True if the changes need reboots. Otherwise nodes are not even drained.
    pub reboots: bool,
    /// Actions of the users.
    pub script: Vec<(Millis, UserAction)>,
    /// Faults of the environment.
    pub faults: Faults,
    /// True if a budget allows no eviction at all.
    pub blocked: bool,
    /// Action at a point of the handshake between daemon and controller, after a delay.
    pub interruption: Option<(HandshakePoint, Millis, UserAction)>,
}

impl Scenario {
    /// Generates the scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let chance = &mut SeededRng::new(seed);
        let workers = 1 + chance.index(7);
        let flaws = [
            Flaw::NotReadyAtBoot,
            Flaw::NotReadyLater,
            Flaw::FailsBeforeDrain,
            Flaw::FailsAfterDrain,
        ];
        let flaw = flaws.get(chance.index(8)).copied();
        let mut faults = Faults::default();
        for (fault, _, _) in Fault::ALL {
            if chance.percent(35) {
                faults.set(fault, u8::try_from(chance.between(1, 30)).unwrap_or_default());
            }
        }
        Self {
            seed,
            workers,
            others: if chance.percent(30) { 1 + chance.index(3) } else { 0 },
            max_unavailable: 1 + i32::try_from(chance.below(3)).unwrap_or_default(),
            pods: chance.index(3),
            flaw,
            reboots: !chance.percent(10),
            script: script(chance, workers),
            faults,
            blocked: false,
            interruption: chance.percent(40).then(|| interruption(chance)),
        }
    }

    /// Builds the simulator's input.
    #[must_use]
    pub fn setup(&self, chooser: Chooser, bug: Option<Bug>) -> Setup {
        fleet::setup(self, chooser, bug)
    }
}

/// Generates a revert, a new config or a restart at some point of a handshake.
fn interruption(chance: &mut SeededRng) -> (HandshakePoint, Millis, UserAction) {
    let target =
        |config: &str| UserAction::Target { pool: "worker".to_owned(), config: config.to_owned() };
    let points = HandshakePoint::ALL;
    let point = points.get(chance.index(points.len())).copied();
    let delay = [0, 50, 500, 5_000].get(chance.index(4)).copied();
    let action = match chance.index(4) {
        0 => target("old"),
        1 => target("second"),
        2 => UserAction::RestartController,
        _ => UserAction::RestartDaemon(0),
    };
    (point.unwrap_or(HandshakePoint::Cordoned), delay.unwrap_or_default(), action)
}

/// Generates a change, user actions meanwhile, and finally a config that all nodes can apply.
fn script(chance: &mut SeededRng, workers: usize) -> Vec<(Millis, UserAction)> {
    let target =
        |config: &str| UserAction::Target { pool: "worker".to_owned(), config: config.to_owned() };
    let mut script = vec![(1_000, target("first"))];
    let other = UserAction::Target { pool: "infra".to_owned(), config: "first".to_owned() };
    script.push((1_000, other));
    if chance.percent(30) {
        let at = chance.between(0, 40) * MINUTE;
        script.push((at, UserAction::Pause("worker".to_owned())));
        script.push((at + chance.between(1, 30) * MINUTE, UserAction::Resume("worker".to_owned())));
    }
    for _ in 0..chance.index(3) {
        let (node, at) = (chance.index(workers), chance.between(0, 60_000) * 60);
        script.push((at, UserAction::Cordon(node)));
        // A cordon that is never removed could block the rollout forever.
        script.push((at + chance.between(1, 60) * MINUTE, UserAction::Uncordon(node)));
    }
    let good = if chance.percent(70) { "old" } else { "second" };
    script.push((chance.between(1_000, 60 * MINUTE), target(good)));
    let other = UserAction::Target { pool: "infra".to_owned(), config: good.to_owned() };
    script.push((chance.between(1_000, 60 * MINUTE), other));
    script
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} workers and {} others, maxUnavailable {}, {} pods each, flaw {:?}, \
             reboots {}, faults {}",
            self.seed,
            self.workers,
            self.others,
            self.max_unavailable,
            self.pods,
            self.flaw,
            self.reboots,
            self.faults
        )?;
        if let Some((point, delay, action)) = &self.interruption {
            writeln!(f, "  {delay} ms after {point:?}: {action:?}")?;
        }
        self.script.iter().try_for_each(|(at, action)| writeln!(f, "  {} {action:?}", clock(*at)))
    }
}

/// Runs the scenario of a seed with the production decision function.
pub fn check(seed: u64) -> Result<Report, String> {
    check_with(&Scenario::of(seed), PRODUCTION, None)
}

/// Runs a scenario. An error contains a small scenario that violates the same invariant, and its
/// trace.
pub fn check_with(
    scenario: &Scenario,
    chooser: Chooser,
    bug: Option<Bug>,
) -> Result<Report, String> {
    let report = run(scenario.setup(chooser, bug));
    let Some(violation) = &report.violation else { return Ok(report) };
    let small = shrink::smallest(scenario, violation.rule, chooser, bug);
    let trace = run(small.setup(chooser, bug));
    let who = trace.violation.map(|violation| violation.who).unwrap_or_default();
    let lines: Vec<String> = trace
        .timeline
        .iter()
        .map(|entry| format!("  {} {} {}", clock(entry.at), entry.object, entry.what))
        .collect();
    let cut = lines.len().saturating_sub(60);
    let lines = lines.into_iter().skip(cut).collect::<Vec<_>>().join("\n");
    Err(format!("seed {}: {} ({who})\nsmallest: {small}{lines}", scenario.seed, violation.rule))
}
