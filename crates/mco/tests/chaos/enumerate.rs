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

/// Number of faults that `make test` runs; `make soak` runs all of them.
const SAMPLE: usize = 100;

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
                        failed.lock().unwrap().push(fault);
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap()
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

/// Returns all plans with a single fault, for the requests of a run without faults.
fn singles(entries: &[Entry]) -> Vec<Plan> {
    let all = entries.iter().flat_map(|entry| Fault::ALL.map(|fault| (entry, fault)));
    let applies = all.filter(|(entry, fault)| fault.applies_to(&entry.call()));
    applies.map(|(entry, fault)| Plan::single(entry.number, fault)).collect()
}

/// Returns about `count` of the plans, spread evenly.
fn spread(plans: Vec<Plan>, count: usize) -> Vec<Plan> {
    let step = plans.len().div_ceil(count).max(1);
    plans.into_iter().step_by(step).collect()
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
    let all = singles(&run(&Plan::default()).entries);
    let total = all.len();
    let plans = if std::env::var_os("MCO_CHAOS_ALL").is_some() { all } else { spread(all, SAMPLE) };
    expect_all(&format!("single faults, of {total}"), &plans);
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
