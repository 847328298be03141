//! A work queue of object names, each processed by one worker at a time.
//!
//! Adding a queued name again changes nothing or moves it forward. Adding a name that is being
//! processed has it processed once more afterwards. So a burst of changes costs one reconciliation,
//! and two reconciliations of one object never overlap.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{sync::Notify, time::Instant};

use crate::{
    CallError, Shutdown,
    error::Rejection,
    health::{Load, Probe},
};

/// First delay after a failure; doubled with each further failure.
const MIN_BACKOFF: Duration = Duration::from_millis(50);

/// Maximum delay after failures, apart from jitter, so that a repaired cause is noticed within a
/// minute.
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// The result of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// Nothing to do until the object changes.
    Done,
    /// Reconcile again after this time.
    RequeueAfter(Duration),
    /// The reconciliation failed: retry with a backoff.
    Retry,
}

impl Reconciled {
    /// Returns the result for an error, by the API server's response that caused it.
    ///
    /// A conflict is retried at once, a request that the server was too busy for when the server
    /// asks, and any other error with a backoff, because its cause may be repaired at any time.
    #[must_use]
    pub fn after(error: &(dyn Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(call) = error.downcast_ref::<CallError>() {
                return match (call.rejection(), call.retry_after()) {
                    (Some(Rejection::Conflict), _) => Self::RequeueAfter(MIN_BACKOFF),
                    (Some(Rejection::TooManyRequests), Some(pause)) => {
                        Self::RequeueAfter(pause.min(MAX_BACKOFF))
                    }
                    _ => Self::Retry,
                };
            }
            cause = error.source();
        }
        Self::Retry
    }
}

/// A queue of names, each with the time at which it is due.
#[derive(Debug)]
pub struct Queue<T> {
    state: Arc<Mutex<State<T>>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    by_name: BTreeMap<T, Instant>,
    by_time: BTreeSet<(Instant, T)>,
    /// Bursts that are being debounced.
    bursts: BTreeMap<T, Burst>,
    /// Names that are being processed, and the start of each.
    running: BTreeMap<T, Instant>,
    /// Last time that a name was taken or finished; `None` before the queue runs.
    moved: Option<Instant>,
    failures: BTreeMap<T, u32>,
}

/// Changes that follow each other.
#[derive(Clone, Copy, Debug)]
struct Burst {
    first: Instant,
    last: Instant,
    /// Longest time between two changes.
    gap: Duration,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let state = State {
            by_name: BTreeMap::new(),
            by_time: BTreeSet::new(),
            bursts: BTreeMap::new(),
            running: BTreeMap::new(),
            moved: None,
            failures: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Notify::new() }
    }
}

impl<T: Ord + Clone> Queue<T> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `name` to be processed after `delay`, or earlier if it is due earlier already.
    pub fn add_after(&self, name: T, delay: Duration) {
        let due = Instant::now() + delay;
        let mut state = self.lock();
        if let Some(earlier) = state.by_name.get(&name).copied() {
            if earlier <= due {
                return;
            }
            state.by_time.remove(&(earlier, name.clone()));
        }
        state.by_name.insert(name.clone(), due);
        state.by_time.insert((due, name));
        drop(state);
        self.changed.notify_one();
    }

    /// Adds `name` to be processed once it has not been added for `quiet`, or for twice the longest
    /// pause of its burst if that is longer, and after ten times `quiet` at the latest. So a single
    /// change is processed soon, and a slow burst costs one reconciliation.
    pub fn add_debounced(&self, name: T, quiet: Duration) {
        let now = Instant::now();
        let mut state = self.lock();
        let new = Burst { first: now, last: now, gap: Duration::ZERO };
        let burst = state.bursts.entry(name.clone()).or_insert(new);
        burst.gap = burst.gap.max(now.duration_since(burst.last));
        burst.last = now;
        let wait = quiet.max(burst.gap.saturating_mul(2));
        let due = (now + wait).min(burst.first + quiet.saturating_mul(10));
        if let Some(earlier) = state.by_name.insert(name.clone(), due) {
            state.by_time.remove(&(earlier, name.clone()));
        }
        state.by_time.insert((due, name));
        drop(state);
        self.changed.notify_one();
    }

    /// Adds `name` to be processed as soon as possible.
    pub fn add(&self, name: T) {
        self.add_after(name, Duration::ZERO);
    }

    /// Processes names as they come due, up to `width` at a time, until shutdown.
    ///
    /// Work that has started is finished first.
    pub async fn run<F>(&self, width: usize, shutdown: &Shutdown, reconcile: impl Fn(T) -> F)
    where
        F: Future<Output = Reconciled>,
    {
        let mut running = FuturesUnordered::new();
        self.lock().moved = Some(Instant::now());
        while !shutdown.is_requested() {
            tokio::select! {
                () = shutdown.requested() => break,
                Some((name, next)) = running.next(), if !running.is_empty() => {
                    self.finish(name, next);
                }
                name = self.take(), if running.len() < width => {
                    let reconciling = reconcile(name.clone());
                    running.push(async move { (name, reconciling.await) });
                }
            }
        }
        while running.next().await.is_some() {}
    }

    async fn take(&self) -> T {
        loop {
            let due = match self.first() {
                First::Ready(name) => return name,
                First::At(due) => due,
                First::Nothing => {
                    self.changed.notified().await;
                    continue;
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    fn first(&self) -> First<T> {
        let mut state = self.lock();
        let idle =
            state.by_time.iter().find(|(_, name)| !state.running.contains_key(name)).cloned();
        match idle {
            None => First::Nothing,
            Some((due, _)) if due > Instant::now() => First::At(due),
            Some((due, name)) => {
                state.by_time.remove(&(due, name.clone()));
                state.by_name.remove(&name);
                state.bursts.remove(&name);
                let now = Instant::now();
                state.running.insert(name.clone(), now);
                state.moved = Some(now);
                First::Ready(name)
            }
        }
    }

    fn finish(&self, name: T, next: Reconciled) {
        let mut state = self.lock();
        state.running.remove(&name);
        state.moved = Some(Instant::now());
        let delay = match next {
            Reconciled::Done | Reconciled::RequeueAfter(_) => {
                state.failures.remove(&name);
                if let Reconciled::RequeueAfter(delay) = next { Some(delay) } else { None }
            }
            Reconciled::Retry => {
                let failures = state.failures.entry(name.clone()).or_default();
                *failures = failures.saturating_add(1);
                Some(pause(*failures))
            }
        };
        drop(state);
        // A name that was added in the meantime may be due now.
        self.changed.notify_one();
        if let Some(delay) = delay {
            self.add_after(name, delay);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is consistent between statements, so a panic elsewhere does not corrupt it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a function that tells the load of the queue until the queue is dropped.
    pub(crate) fn probe(&self) -> Probe
    where
        T: Send + 'static,
    {
        let state = Arc::downgrade(&self.state);
        Box::new(move |now| {
            let state = state.upgrade()?;
            let load = state.lock().unwrap_or_else(PoisonError::into_inner).load(now);
            Some(load)
        })
    }
}

impl<T: Ord> State<T> {
    /// Returns the load of the queue.
    ///
    /// An entry that is due counts as stalled from the time that the queue last moved, because others
    /// may be served first. An entry that is being processed counts from its start, even if others
    /// move. A queue that does not run yet (it waits for its caches) is not stalled.
    fn load(&self, now: Instant) -> Load {
        let since = |at: Instant| now.saturating_duration_since(at);
        let oldest_due = self.by_time.first().map(|(due, _)| since(*due)).unwrap_or_default();
        let waiting = self.by_time.iter().find(|(_, name)| !self.running.contains_key(name));
        let waiting = waiting.zip(self.moved).map(|((due, _), moved)| since((*due).max(moved)));
        let running = self.running.values().map(|start| since(*start)).max().unwrap_or_default();
        let waiting = waiting.unwrap_or_default();
        Load { depth: self.by_name.len(), oldest_due, waiting, running }
    }
}

enum First<T> {
    Ready(T),
    At(Instant),
    Nothing,
}

/// Returns the delay after a number of failures in a row, with jitter so that many names are not
/// retried in step.
fn pause(failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    MIN_BACKOFF.saturating_mul(factor).min(MAX_BACKOFF).mul_f64(1.0 + fastrand::f64() / 4.0)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    async fn looks(adds: &[(&'static str, u64)], answer: Reconciled) -> Vec<(&'static str, u64)> {
        let (queue, shutdown) = (Queue::new(), Shutdown::new());
        let start = Instant::now();
        for (name, delay) in adds {
            queue.add_after(*name, Duration::from_secs(*delay));
        }
        let seen = Arc::new(Mutex::new(Vec::new()));
        let look = |name: &'static str| {
            let seen = seen.clone();
            async move {
                seen.lock().unwrap().push((name, start.elapsed().as_secs()));
                answer
            }
        };
        tokio::select! {
            () = queue.run(2, &shutdown, look) => {}
            () = tokio::time::sleep(Duration::from_mins(1)) => {}
        }
        let seen = seen.lock().unwrap();
        seen.clone()
    }

    // covers: REN-2
    #[tokio::test(start_paused = true)]
    async fn a_burst_costs_one_reconciliation_at_the_earliest_time() {
        let seen = looks(&[("a", 5), ("b", 3), ("a", 9), ("a", 5)], Reconciled::Done).await;
        assert_eq!(seen, [("b", 3), ("a", 5)]);
    }

    // covers: REN-2
    #[tokio::test(start_paused = true)]
    async fn a_burst_is_reconciled_when_it_ends_and_an_endless_one_regularly() {
        for (changes, expected) in [(5, vec![8]), (30, vec![21, 38])] {
            let (queue, shutdown) = (Queue::new(), Shutdown::new());
            let (start, seen) = (Instant::now(), Mutex::new(Vec::new()));
            let look = |()| {
                seen.lock().unwrap().push(start.elapsed().as_secs());
                async { Reconciled::Done }
            };
            let burst = async {
                for _ in 0..changes {
                    tokio::time::sleep(Duration::from_millis(1200)).await;
                    queue.add_debounced((), Duration::from_secs(2));
                }
                tokio::time::sleep(Duration::from_mins(1)).await;
            };
            tokio::select! {
                () = queue.run(1, &shutdown, look) => {}
                () = burst => {}
            }
            assert_eq!(*seen.lock().unwrap(), expected);
        }
    }

    // covers: REN-2
    #[tokio::test(start_paused = true)]
    async fn a_single_change_waits_for_one_quiet_period_and_a_slow_burst_for_longer() {
        // Times of the changes and of the reconciliations, in milliseconds; the quiet period is
        // 200.
        let cases: [(&[u64], &[u128]); 4] = [
            (&[0], &[200]),
            (&[0, 0, 0], &[200]),
            (&[0, 150, 170], &[470]),
            (&[0, 150, 400, 1000], &[900, 1200]),
        ];
        for (changes, expected) in cases {
            let (queue, shutdown) = (Queue::new(), Shutdown::new());
            let (start, seen) = (Instant::now(), Mutex::new(Vec::new()));
            let look = |()| {
                seen.lock().unwrap().push(start.elapsed().as_millis());
                async { Reconciled::Done }
            };
            let burst = async {
                for change in changes {
                    tokio::time::sleep_until(start + Duration::from_millis(*change)).await;
                    queue.add_debounced((), Duration::from_millis(200));
                }
                tokio::time::sleep(Duration::from_mins(1)).await;
            };
            tokio::select! {
                () = queue.run(1, &shutdown, look) => {}
                () = burst => {}
            }
            let seen: Vec<u128> = seen.lock().unwrap().iter().map(|at| at / 10 * 10).collect();
            assert_eq!(seen, expected, "{changes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconciliation_can_requeue_its_object() {
        let seen = looks(&[("a", 0)], Reconciled::RequeueAfter(Duration::from_secs(25))).await;
        assert_eq!(seen, [("a", 0), ("a", 25), ("a", 50)]);
    }

    // covers: WQ-1, O46
    #[tokio::test(start_paused = true)]
    async fn failures_are_retried_with_a_backoff_for_ever() {
        let seen = looks(&[("a", 0)], Reconciled::Retry).await;
        assert!((9..15).contains(&seen.len()), "{seen:?}");
        for failures in [12, 40, u32::MAX] {
            let (least, most) = (Duration::from_mins(1), Duration::from_secs(75));
            assert!((least..=most).contains(&pause(failures)), "at most once a minute");
        }
    }

    // covers: WQ-1
    #[test]
    fn the_response_of_the_api_server_decides_about_the_retry() {
        let refused = |code: u16, reason: &str, seconds: u32| {
            let status = serde_json::json!({"status": "Failure", "code": code, "reason": reason,
                "message": "no", "details": {"retryAfterSeconds": seconds}});
            CallError::from(kube::Error::Api(serde_json::from_value(status).unwrap()))
        };
        let rows = [
            (refused(409, "Conflict", 0), Reconciled::RequeueAfter(MIN_BACKOFF)),
            (refused(409, "AlreadyExists", 0), Reconciled::Retry),
            (refused(429, "TooManyRequests", 0), Reconciled::Retry),
            (refused(429, "TooManyRequests", 7), Reconciled::RequeueAfter(Duration::from_secs(7))),
            (
                refused(429, "TooManyRequests", 7000),
                Reconciled::RequeueAfter(Duration::from_mins(1)),
            ),
            (refused(403, "Forbidden", 0), Reconciled::Retry),
            (refused(500, "InternalError", 0), Reconciled::Retry),
        ];
        for (error, expected) in rows {
            #[derive(Debug, thiserror::Error)]
            #[error("failed to write")]
            struct Above(#[source] CallError);
            let code = error.rejection();
            assert_eq!(Reconciled::after(&Above(error)), expected, "{code:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn two_reconciliations_of_one_object_never_overlap() {
        let (queue, shutdown) = (Queue::new(), Shutdown::new());
        queue.add("a");
        let (active, runs) = (Mutex::new(0), Mutex::new(0));
        let look = |name: &'static str| {
            let (queue, active, runs) = (&queue, &active, &runs);
            async move {
                *active.lock().unwrap() += 1;
                *runs.lock().unwrap() += 1;
                if *runs.lock().unwrap() < 3 {
                    queue.add(name);
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert_eq!(*active.lock().unwrap(), 1);
                *active.lock().unwrap() -= 1;
                Reconciled::Done
            }
        };
        tokio::select! {
            () = queue.run(5, &shutdown, look) => {}
            () = tokio::time::sleep(Duration::from_mins(1)) => {}
        }
        assert_eq!(*runs.lock().unwrap(), 3);
    }
}
