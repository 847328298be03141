//! Metrics of requests, and the list of requests without an answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{Method, Response};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tokio::time::Instant;
use tower::BoxError;
use tracing::info;

use super::deadline::{Deadline, Target, TimedOut};
use crate::lease::NotLeading;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    method: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DeadlineLabel {
    deadline: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetryLabel {
    reason: &'static str,
}

/// Counts of requests to the API server, shared by all clients of a process.
#[derive(Clone, Debug, Default)]
pub struct RequestMetrics {
    requests: Family<RequestLabel, Counter>,
    timeouts: Family<DeadlineLabel, Counter>,
    retries: Family<RetryLabel, Counter>,
    in_flight: Arc<InFlight>,
}

#[derive(Debug, Default)]
struct InFlight {
    next: AtomicU64,
    requests: Mutex<BTreeMap<u64, (Target, Instant)>>,
}

impl RequestMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let help = "requests to the API server, by method and result; each attempt counts";
        registry.register("mco_api_requests", help, self.requests.clone());
        let help = "requests to the API server that timed out, by deadline";
        registry.register("mco_api_request_timeouts", help, self.timeouts.clone());
        let help = "repeated requests to the API server, by reason";
        registry.register("mco_api_request_retries", help, self.retries.clone());
    }

    /// Returns the requests without a complete answer, oldest first, with the time since they were
    /// sent.
    #[must_use]
    pub fn in_flight(&self) -> Vec<String> {
        let requests = self.in_flight.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(target, sent): &(Target, Instant)| {
            format!("{} {} since {} s", target.method, target.path, sent.elapsed().as_secs())
        };
        requests.values().map(line).collect()
    }

    /// Adds a request to the list until the returned value is finished, or dropped with the request.
    pub(super) fn start(&self, target: Target) -> Started {
        let (metrics, copy) = (self.clone(), target.clone());
        let list = &self.in_flight;
        let number = list.next.fetch_add(1, Ordering::Relaxed);
        let mut requests = list.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.insert(number, (target, Instant::now()));
        drop(requests);
        Started { metrics, target: copy, number, is_finished: false }
    }

    /// Counts the result of an attempt.
    pub(super) fn count<B>(&self, method: &Method, result: &Result<Response<B>, BoxError>) {
        let result = match result {
            Ok(response) => match response.status().as_u16() {
                200..300 => "2xx",
                400..500 => "4xx",
                500..600 => "5xx",
                _ => "other",
            },
            Err(error) if error.is::<NotLeading>() => "rejected",
            Err(error) => match error.downcast_ref::<TimedOut>() {
                Some(failure) => {
                    self.count_timeout(failure.deadline);
                    "timeout"
                }
                None => "error",
            },
        };
        self.requests.get_or_create(&RequestLabel { method: name(method), result }).inc();
    }

    pub(super) fn count_timeout(&self, deadline: Deadline) {
        self.timeouts.get_or_create(&DeadlineLabel { deadline: deadline.name() }).inc();
    }

    pub(super) fn count_retry(&self, reason: &'static str) {
        self.retries.get_or_create(&RetryLabel { reason }).inc();
    }
}

/// A request in the list of those without an answer.
pub(super) struct Started {
    metrics: RequestMetrics,
    target: Target,
    number: u64,
    is_finished: bool,
}

impl Started {
    /// Removes a request with a result from the list.
    pub(super) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let list = &self.metrics.in_flight;
        let mut requests = list.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.remove(&self.number);
        drop(requests);
        // The caller waits no longer, such as a daemon before the reboot of its machine.
        if !self.is_finished {
            let Target { method, path } = &self.target;
            info!(%method, path, "Gave up a request to the API server without an answer");
            let label = RequestLabel { method: name(method), result: "dropped" };
            self.metrics.requests.get_or_create(&label).inc();
        }
    }
}

fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
