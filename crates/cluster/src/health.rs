//! Health of a process: the activity of its watches and queues.
//!
//! A watch is stale if its first list is missing, or if nothing was heard for longer than
//! `STALE_LIMIT`; then the process is not ready. A queue is stuck if an entry is due and no worker
//! has finished for longer than `STUCK_LIMIT`, or if one worker runs for longer than that; then
//! the process is not live, and the kubelet restarts it.

mod metrics;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use prometheus_client::registry::Registry;
use tokio::time::Instant;

use self::metrics::{Counters, WatchMetrics};
use crate::watch::{IDLE_LIMIT, Relist};

/// Time without any answer after which a watch is stale: an idle watch is dropped before, and its list
/// has a minute to arrive.
pub(crate) const STALE_LIMIT: Duration = Duration::from_secs(IDLE_LIMIT.as_secs() + 60);

/// Time after which a queue that does not move is stuck.
pub(crate) const STUCK_LIMIT: Duration = Duration::from_mins(10);

/// Requirement that the API server serves a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The process does not work without the kind.
    Required,
    /// The process works without the kind.
    Optional,
}

/// Health of a process. Clones share it.
#[derive(Clone, Default)]
pub struct Health(Arc<Parts>);

#[derive(Default)]
struct Parts {
    watches: Mutex<Vec<Weak<WatchState>>>,
    queues: Mutex<Vec<QueueState>>,
    /// Reason why the process deliberately does nothing.
    idle: Mutex<Option<String>>,
    counters: Counters,
}

struct QueueState {
    name: &'static str,
    work: Work,
    probe: Probe,
}

/// The kind of work that a queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Each entry is processed within `STUCK_LIMIT`.
    Short,
    /// An entry may be processed for any time, because it waits for others: a drain waits for pods. It
    /// counts only while it waits for a worker.
    Long,
}

/// A function that returns the load of a queue; `None` if the queue is gone.
pub(crate) type Probe = Box<dyn Fn(Instant) -> Option<Load> + Send + Sync>;

/// The load of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Number of entries, due or not.
    pub(crate) depth: usize,
    /// Time since which the oldest entry is due.
    pub(crate) oldest_due: Duration,
    /// Time since which an entry waits for a worker and no worker has finished.
    pub(crate) waiting: Duration,
    /// Time since which an entry is being processed.
    pub(crate) running: Duration,
}

impl Load {
    /// Returns the time since which the queue makes no progress.
    fn stalled(&self, work: Work) -> Duration {
        match work {
            Work::Short => self.waiting.max(self.running),
            Work::Long => self.waiting,
        }
    }
}

struct WatchState {
    kind: String,
    presence: Presence,
    times: Mutex<Times>,
}

#[derive(Clone, Copy)]
struct Times {
    heard: Instant,
    list: ListState,
}

/// The state of a watch's first list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListState {
    Pending,
    Absent,
    Synced,
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Health").finish_non_exhaustive()
    }
}

impl Health {
    /// Registers the metrics of watches and queues.
    pub fn register(&self, registry: &mut Registry) {
        self.0.counters.register(registry);
        registry.register_collector(Box::new(WatchMetrics(self.clone())));
    }

    /// Observes a watch until the result is dropped.
    pub(crate) fn watch(&self, kind: &str, presence: Presence) -> WatchActivity {
        let times = Mutex::new(Times { heard: Instant::now(), list: ListState::Pending });
        let state = Arc::new(WatchState { kind: kind.to_owned(), presence, times });
        let mut watches = lock(&self.0.watches);
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(&state));
        drop(watches);
        WatchActivity { state, health: self.clone() }
    }

    /// Observes a queue until it is dropped.
    pub fn queue<T>(&self, name: &'static str, queue: &crate::Queue<T>, work: Work)
    where
        T: Ord + Clone + Send + 'static,
    {
        lock(&self.0.queues).push(QueueState { name, work, probe: queue.probe() });
    }

    /// Sets the reason why the process deliberately does nothing; `None` if it works. A process that
    /// does nothing on purpose is ready.
    pub fn set_idle(&self, reason: Option<String>) {
        *lock(&self.0.idle) = reason;
    }

    /// Returns the reason why the process deliberately does nothing.
    #[must_use]
    pub fn idle(&self) -> Option<String> {
        lock(&self.0.idle).clone()
    }

    /// Returns the watches that are stale, one line for each.
    #[must_use]
    pub fn stale_watches(&self) -> Vec<String> {
        let now = Instant::now();
        let mut stale: Vec<String> =
            self.watches().iter().filter_map(|watch| watch.staleness(now)).collect();
        stale.sort_unstable();
        stale.dedup();
        stale
    }

    /// Returns the queues that do not move, one line for each.
    #[must_use]
    pub(crate) fn stuck_queues(&self) -> Vec<String> {
        let loads = self.loads();
        let stalls = loads.into_iter().map(|(name, work, load)| (name, load.stalled(work)));
        let stuck = stalls.filter(|(_, stalled)| *stalled > STUCK_LIMIT);
        let lines = stuck.map(|(name, stalled)| {
            format!("queue {name} has not moved for {} s", stalled.as_secs())
        });
        lines.collect()
    }

    fn watches(&self) -> Vec<Arc<WatchState>> {
        lock(&self.0.watches).iter().filter_map(Weak::upgrade).collect()
    }

    fn loads(&self) -> Vec<(&'static str, Work, Load)> {
        let now = Instant::now();
        let mut loads = Vec::new();
        lock(&self.0.queues).retain(|queue| {
            let load = (queue.probe)(now);
            loads.extend(load.map(|load| (queue.name, queue.work, load)));
            load.is_some()
        });
        loads
    }
}

impl WatchState {
    /// Returns a line about the watch if it is stale.
    fn staleness(&self, now: Instant) -> Option<String> {
        let times = *lock(&self.times);
        let silent = now.saturating_duration_since(times.heard);
        let kind = &self.kind;
        match (times.list, self.presence) {
            _ if silent > STALE_LIMIT => {
                Some(format!("watch of {kind} is stale: nothing heard for {} s", silent.as_secs()))
            }
            (ListState::Pending, _) => {
                Some(format!("watch of {kind} has not listed its objects yet"))
            }
            (ListState::Absent, Presence::Required) => {
                Some(format!("watch of {kind}: the API server does not serve the kind"))
            }
            (ListState::Absent, Presence::Optional) | (ListState::Synced, _) => None,
        }
    }
}

/// The activity of one watch.
pub(crate) struct WatchActivity {
    state: Arc<WatchState>,
    health: Health,
}

impl WatchActivity {
    /// Records that the API server sent a page, an event or a bookmark.
    pub(crate) fn heard(&self) {
        lock(&self.state.times).heard = Instant::now();
    }

    /// Records that a list is complete.
    pub(crate) fn synced(&self) {
        *lock(&self.state.times) = Times { heard: Instant::now(), list: ListState::Synced };
    }

    /// Records that the API server does not serve the kind.
    pub(crate) fn absent(&self) {
        let mut times = lock(&self.state.times);
        times.heard = Instant::now();
        if times.list == ListState::Pending {
            times.list = ListState::Absent;
        }
    }

    /// Counts a failure.
    pub(crate) fn failed(&self) {
        self.health.0.counters.failed(&self.state.kind);
    }

    /// Counts a list that is started over.
    pub(crate) fn relist(&self, reason: Relist) {
        self.health.0.counters.relist(&self.state.kind, reason);
    }

    /// Sets the number of objects that cannot be decoded.
    pub(crate) fn set_unreadable(&self, count: usize) {
        self.health.0.counters.set_unreadable(&self.state.kind, count);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The values are consistent between statements, so a panic elsewhere does not corrupt them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
