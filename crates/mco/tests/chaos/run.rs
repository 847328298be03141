//! One run: a whole rollout on an embedded API server, under a plan of faults, on a paused clock.

use std::time::Duration;

use kube::Client;
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::{
    Clock,
    client::{self, Options, RequestMetrics},
};
use mco_testkit::{
    chaos::{Chaos, Entry, Fault, Plan},
    log::Lines,
};
use tracing::Level;

use crate::{cluster::Cluster, log};

/// Time in which the cluster converges, installation and rollout each, on the cluster's clock.
pub(crate) const BOUND: Duration = Duration::from_mins(30);

/// Time in which every fault is noticed: the idle limit of a watch, and some seconds.
const NOTICED: Duration = Duration::from_secs(200);

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The broken promise.
    pub(crate) fault: Option<String>,
    /// All requests of the components.
    pub(crate) entries: Vec<Entry>,
    /// The lines of failures in the log.
    pub(crate) failures: Vec<String>,
    /// The metrics of all components.
    pub(crate) metrics: String,
}

/// Runs a rollout under a plan.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let lines = Lines::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let ran = tracing::dispatcher::with_default(&lines.dispatch(Level::INFO), || {
        let chaos = Chaos::new(plan);
        let (fault, metrics) = runtime.block_on(rollout(&chaos));
        (fault, metrics, chaos.entries())
    });
    runtime.shutdown_background();
    let (fault, metrics, entries) = ran;
    let failures = lines.failures();
    let fault = fault.or_else(|| silent(&entries, &lines, &metrics));
    let fault = fault.map(|fault| report(plan, &entries, &fault, &lines));
    Outcome { fault, entries, failures, metrics }
}

/// Starts a cluster on an embedded API server.
pub(crate) async fn start(chaos: &Chaos) -> Cluster {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let direct = Client::new(api, "default");
    let options = Options { metrics: RequestMetrics::default(), ..Options::default() };
    let through = client::over(client::service(chaos.client(&direct)), "default", &options);
    let clock = Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap());
    Cluster::start(direct, &through, &options.metrics, clock).await
}

async fn rollout(chaos: &Chaos) -> (Option<String>, String) {
    let cluster = start(chaos).await;
    let mut fault = cluster.roll_out(BOUND).await.err();
    if fault.is_none() && chaos.entries().iter().any(is_failure) {
        // A watch that became silent is noticed later than the end of the rollout. The clock is paused:
        // no real time passes.
        tokio::time::sleep(NOTICED).await;
        fault = cluster.finish(BOUND).await.err();
    }
    let metrics = cluster.metrics();
    let stopped = cluster.stop().await.err();
    (fault.or(stopped), metrics)
}

/// Returns true if the fault of a request must be logged and counted.
fn is_failure(entry: &Entry) -> bool {
    // The body of a watch is cut at its first event, which may never come. An eviction that is refused
    // is reported by the drain if it stays refused.
    let may_be_silent = (entry.watch && entry.fault == Some(Fault::CutBody))
        || (entry.path.ends_with("/eviction") && entry.fault == Some(Fault::Answer(429)));
    !may_be_silent && entry.fault.is_some_and(Fault::is_failure)
}

/// Returns the failure that left no line in the log, or all of them if the metrics count too few.
///
/// The line of a request names its method and path. That of a watch is written by the component that sent
/// it: any warning counts.
fn silent(entries: &[Entry], lines: &Lines, metrics: &str) -> Option<String> {
    let failed: Vec<&Entry> = entries.iter().filter(|entry| is_failure(entry)).collect();
    let is_logged = |entry: &Entry| {
        let is_named = log::has_request(lines, &entry.method, &entry.path);
        is_named || (entry.watch && !lines.failures().is_empty())
    };
    if let Some(entry) = failed.iter().find(|entry| !is_logged(entry)) {
        return Some(format!("silent: nothing was logged for {entry}"));
    }
    let counted = counted_failures(metrics);
    let is_too_few = counted < failed.len();
    is_too_few.then(|| format!("silent: {counted} of {} failures were counted", failed.len()))
}

/// Returns the number of failed requests and watches in the metrics. Refusals count, although a run
/// without faults has conflicts and the like, too.
fn counted_failures(metrics: &str) -> usize {
    let is_failure = |line: &&str| {
        let results = ["4xx", "5xx", "timeout", "error", "dropped"];
        line.starts_with("mco_watch_failures_total")
            || line.starts_with("mco_api_request_timeouts_total{deadline=\"idle\"")
            || (line.starts_with("mco_api_requests_total")
                && results.iter().any(|result| line.contains(&format!("result=\"{result}\""))))
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<usize>().ok();
    metrics.lines().filter(is_failure).filter_map(value).sum()
}

fn report(plan: &Plan, entries: &[Entry], fault: &str, lines: &Lines) -> String {
    let applied: Vec<String> =
        entries.iter().filter(|it| it.fault.is_some()).map(ToString::to_string).collect();
    let (log, failures) = (lines.text(), lines.failures().join("\n  "));
    let tail: Vec<&str> = log.lines().rev().take(15).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    format!(
        "MCO_CHAOS_PLAN={plan}\n{fault}\nfaults:\n  {}\nfailures:\n  {failures}\nlog:\n  {}",
        applied.join("\n  "),
        tail.join("\n  ")
    )
}
