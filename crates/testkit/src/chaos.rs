//! Faults between a client and an API server: [`Chaos`] applies a [`Plan`] of [`Fault`]s to the
//! requests that pass through it, in process ([`Chaos::client`]) or as a TLS proxy ([`Proxy`]).

mod answer;
mod fault;
mod plan;
mod proxy;

use std::{
    fmt, future, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use http::{Method, Request, Response};
use kube::{Client, client::Body};

pub use self::{
    answer::Frames,
    fault::{Call, Fault},
    plan::{Plan, PlanError, Rule},
    proxy::Proxy,
};

/// A request that passed, and the fault that was applied to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the request, from one.
    pub number: usize,
    /// Method of the request.
    pub method: Method,
    /// Path of the request.
    pub path: String,
    /// True if the request opens a watch.
    pub watch: bool,
    /// The fault.
    pub fault: Option<Fault>,
}

impl Entry {
    /// Returns the parts of the request that decide which faults apply to it.
    #[must_use]
    pub fn call(&self) -> Call<'_> {
        Call { method: &self.method, watch: self.watch }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, method, path, watch, fault } = self;
        let watch = if *watch { " (watch)" } else { "" };
        write!(f, "{number} {method} {path}{watch}")?;
        fault.map_or(Ok(()), |fault| write!(f, ": {fault}"))
    }
}

/// Counts requests and applies the faults of a plan. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Chaos(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The rules, each with the number of requests that it still applies to.
    rules: Vec<(Rule, usize)>,
    entries: Vec<Entry>,
}

impl Chaos {
    /// Returns an injector that applies `plan`, with the count of requests at zero.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let chaos = Self::default();
        chaos.apply(plan);
        chaos
    }

    /// Replaces the plan and starts to count from zero.
    pub fn apply(&self, plan: &Plan) {
        let rules = plan.rules().iter().map(|rule| (*rule, rule.count)).collect();
        *self.lock() = State { rules, entries: Vec::new() };
    }

    /// Returns all requests since the plan was applied.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// Returns the requests that a fault was applied to.
    #[must_use]
    pub fn applied(&self) -> Vec<Entry> {
        self.lock().entries.iter().filter(|entry| entry.fault.is_some()).cloned().collect()
    }

    /// Returns a client of `upstream` without deadlines and retries, whose requests suffer the
    /// faults.
    #[must_use]
    pub fn client(&self, upstream: &Client) -> Client {
        let (chaos, upstream) = (self.clone(), upstream.clone());
        let service =
            tower::service_fn(move |request| chaos.clone().pass(upstream.clone(), request));
        Client::new(service, "default")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request and returns its fault.
    fn count(&self, request: &Request<Body>) -> Option<Fault> {
        let mut state = self.lock();
        let number = state.entries.len() + 1;
        let query = request.uri().query().unwrap_or_default();
        let watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
        let call = Call { method: request.method(), watch };
        let due = state
            .rules
            .iter_mut()
            .find(|(rule, left)| *left > 0 && rule.from <= number && rule.fault.applies_to(&call));
        let fault = due.map(|(rule, left)| {
            *left -= 1;
            rule.fault
        });
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        state.entries.push(Entry { number, method, path, watch, fault });
        fault
    }

    /// Sends a request upstream, with the fault that the plan has for it.
    async fn pass(self, upstream: Client, request: Request<Body>) -> io::Result<Response<Frames>> {
        let Some(fault) = self.count(&request) else {
            return Ok(sent(upstream.send(request).await)?.map(answer::unchanged));
        };
        match fault {
            Fault::SwallowRequest => future::pending().await,
            Fault::SwallowAnswer => {
                drop(upstream.send(request).await);
                future::pending().await
            }
            Fault::Delay(time) => {
                tokio::time::sleep(time).await;
                Ok(sent(upstream.send(request).await)?.map(answer::unchanged))
            }
            Fault::CutBefore => Err(answer::reset()),
            Fault::CutAfter => {
                drop(upstream.send(request).await);
                Err(answer::reset())
            }
            Fault::CutBody => Ok(sent(upstream.send(request).await)?.map(answer::cut)),
            Fault::Answer(code) => Ok(answer::status(code)),
            Fault::AnswerAfter(code) => {
                drop(upstream.send(request).await);
                Ok(answer::status(code))
            }
            Fault::Duplicate => {
                if let Some(copy) = answer::copy(&request) {
                    drop(upstream.send(copy).await);
                }
                Ok(sent(upstream.send(request).await)?.map(answer::unchanged))
            }
            Fault::StallWatch => Ok(sent(upstream.send(request).await)?.map(answer::stalled)),
            Fault::LagWatch(time) => {
                Ok(sent(upstream.send(request).await)?.map(|body| answer::lagging(body, time)))
            }
            Fault::EndWatch => Ok(sent(upstream.send(request).await)?.map(answer::ended)),
        }
    }
}

fn sent(result: kube::Result<Response<Body>>) -> io::Result<Response<Body>> {
    result.map_err(io::Error::other)
}
