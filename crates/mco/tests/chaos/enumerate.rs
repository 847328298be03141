//! Each single fault at each request of a whole rollout.

use std::{
    io::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use mco_testkit::chaos::{Entry, Fault, Plan};

use crate::run::run;

/// Requests between two faults of a run of `make test`; `make soak` runs each fault alone.
///
/// Far enough that most requests recover from their fault before the next one, and so close that all
/// faults need about as many runs as there are kinds of faults, times this number.
const SPACING: usize = 12;

/// Runs at once. The rollouts keep one core busy each.
const THREADS: usize = 2;

/// Number of failed runs that are printed.
const PRINTED: usize = 5;

/// Runs all plans and returns the reports of those that broke a promise.
pub(crate) fn run_all(plans: &[Plan]) -> Vec<String> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(fault) = run(plan).fault {
                        failed.lock().unwrap().push(narrowed(plan).unwrap_or(fault));
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
}

/// Returns the report of a single rule of a failed plan that fails alone.
fn narrowed(plan: &Plan) -> Option<String> {
    let rules = plan.rules().iter().filter(|_| plan.rules().len() > 1);
    let mut alone = rules.map(|rule| Plan::several([(rule.from, rule.fault)]));
    alone.find_map(|plan| run(&plan).fault)
}

/// Prints how many plans were run, and fails if one of them broke a promise.
#[expect(clippy::disallowed_methods, reason = "measures the time of all runs")]
pub(crate) fn expect_all(what: &str, plans: &[Plan]) {
    let start = Instant::now();
    let failed = run_all(plans);
    let line = format!("{what}: {} runs in {:.0?}", plans.len(), start.elapsed());
    let _ = writeln!(std::io::stderr(), "{line}");
    let count = failed.len();
    let shown = failed.into_iter().take(PRINTED).collect::<Vec<_>>().join("\n\n");
    assert!(count == 0, "{count} of {line} failed:\n\n{shown}");
}

/// Returns all faults of the requests of a run without faults, by request.
fn faults(entries: &[Entry]) -> Vec<(usize, Vec<Fault>)> {
    let of = |entry: &Entry| {
        let applies = |fault: &Fault| fault.applies_to(&entry.call());
        (entry.number, Fault::ALL.into_iter().filter(applies).collect())
    };
    entries.iter().map(of).collect()
}

/// Returns all plans with a single fault.
fn singles(faults: &[(usize, Vec<Fault>)]) -> Vec<Plan> {
    let all = faults.iter().flat_map(|(number, kinds)| kinds.iter().map(|kind| (*number, *kind)));
    all.map(|(number, fault)| Plan::single(number, fault)).collect()
}

/// Returns plans that together have every fault at every request, each at requests that are
/// [`SPACING`] apart.
fn spaced(faults: &[(usize, Vec<Fault>)]) -> Vec<Plan> {
    let rounds = faults.iter().map(|(_, kinds)| kinds.len()).max().unwrap_or_default();
    let mut plans = Vec::new();
    for round in 0..rounds {
        for first in 0..SPACING {
            let requests = faults.iter().skip(first).step_by(SPACING).enumerate();
            // Neighbours have different faults.
            let fault = |(place, (number, kinds)): (usize, &(usize, Vec<Fault>))| {
                let kind = kinds.get((round + place) % kinds.len().max(1));
                kind.filter(|_| round < kinds.len()).map(|kind| (*number, *kind))
            };
            plans.push(Plan::several(requests.filter_map(fault)));
        }
    }
    plans.retain(|plan| !plan.rules().is_empty());
    plans
}

#[test]
fn a_rollout_without_faults_converges_and_logs_no_failure() {
    let outcome = run(&Plan::default());
    assert_eq!(outcome.fault, None);
    assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
    assert!(outcome.entries.iter().all(|entry| entry.fault.is_none()));
    let no_failure = |line: &str| !line.contains("timeout") && !line.contains("5xx");
    assert!(outcome.metrics.lines().all(no_failure), "{}", outcome.metrics);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "`make soak` asks for all faults")]
fn every_single_fault_at_every_request_is_survived() {
    let faults = faults(&run(&Plan::default()).entries);
    let singles = singles(&faults);
    if std::env::var_os("MCO_CHAOS_ALL").is_some() {
        expect_all("single faults", &singles);
    } else {
        expect_all(
            &format!("{} faults, {SPACING} requests apart", singles.len()),
            &spaced(&faults),
        );
    }
}

#[test]
fn the_spaced_plans_have_every_fault_at_every_request_once() {
    let kinds = |number: usize| Fault::ALL.into_iter().skip(number % 5).collect::<Vec<_>>();
    let faults: Vec<_> = (1..=100).map(|number| (number, kinds(number))).collect();
    let text = |plan: &Plan| plan.to_string();
    let spaced: Vec<String> = spaced(&faults).iter().map(text).collect();
    let mut found: Vec<&str> = spaced.iter().flat_map(|plan| plan.split(',')).collect();
    let singles: Vec<String> = singles(&faults).iter().map(text).collect();
    let mut expected: Vec<&str> = singles.iter().map(String::as_str).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(spaced.len() <= SPACING * Fault::ALL.len(), "{} plans", spaced.len());
}

/// Runs the plan of a failed run again: `MCO_CHAOS_PLAN=12x1:cut-body`.
#[test]
#[expect(clippy::disallowed_methods, reason = "the environment has the plan")]
fn the_plan_of_the_environment_is_survived() {
    let text = std::env::var("MCO_CHAOS_PLAN").unwrap_or_default();
    let outcome = run(&text.parse().expect("MCO_CHAOS_PLAN is a plan"));
    if let Some(fault) = outcome.fault {
        panic!("{fault}");
    }
}
