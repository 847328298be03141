//! The event queue of a simulation.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use k8s_openapi::api::core::v1::Node;

use crate::{Millis, UserAction};

/// A scheduled event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The user acts.
    User(UserAction),
    /// The controller's watch delivers a node.
    ToController(WatchEvent),
    /// The controller's watch delivers the pools.
    PoolsToController,
    /// A daemon's watch delivers its node.
    ToDaemon(WatchEvent),
    /// The controller reconciles a pool.
    Sync(String),
    /// The controller starts.
    ControllerUp,
    /// The next attempt of a drain.
    Drain(usize),
    /// A pod has terminated.
    PodGone(usize),
    /// A pod without a node is scheduled.
    PodPlaced(usize),
    /// A daemon continues, if this is still its run.
    Daemon {
        /// Index of the node.
        node: usize,
        /// Number of the daemon's run.
        run: u64,
    },
    /// A daemon has written a config, if this is still its run.
    Applied {
        /// Index of the node.
        node: usize,
        /// Number of the daemon's run.
        run: u64,
    },
    /// A machine has booted.
    Boot(usize),
    /// An external problem of a node ends.
    Recovers(usize),
    /// A config fails some time after it was applied.
    LateFailure(usize),
    /// No faults occur from now on.
    FaultsEnd,
}

/// A change of a node, delivered by a watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchEvent {
    pub(crate) node: usize,
    pub(crate) version: u64,
    pub(crate) object: Arc<Node>,
}

/// Events by time, then by order of creation.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(Millis, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    made: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Millis, event: Event) {
        self.made += 1;
        self.heap.push(Reverse((at, self.made)));
        self.events.insert(self.made, event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Millis, Event)> {
        let Reverse((at, number)) = self.heap.pop()?;
        let event = self.events.remove(&number).expect("every heap entry has an event");
        Some((at, event))
    }
}
