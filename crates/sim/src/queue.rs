//! What will happen, in order.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use k8s_openapi::api::core::v1::Node;

use crate::{Action, Millis};

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A person does something.
    Person(Action),
    /// The controller hears of a node.
    ToController(Notice),
    /// The controller hears of its pools.
    PoolsToController,
    /// A daemon hears of its node.
    ToDaemon(Notice),
    /// The controller looks at a pool.
    Sync(String),
    /// The controller is there again.
    ControllerUp,
    /// The next attempt of a drain.
    Drain(usize),
    /// A pod is gone from its node.
    PodGone(usize),
    /// A pod that is nowhere looks for a node.
    PodPlaced(usize),
    /// A daemon goes on, if it is still the same run of it.
    Daemon {
        /// The node.
        node: usize,
        /// Which run of the daemon.
        run: u64,
    },
    /// A daemon has written a config, if it is still the same run of it.
    Applied {
        /// The node.
        node: usize,
        /// Which run of the daemon.
        run: u64,
    },
    /// A machine has booted.
    Boot(usize),
    /// What ails a node from outside is over.
    Recovers(usize),
    /// A config that goes bad later does so.
    Spoils(usize),
    /// Nothing goes wrong any more.
    Calm,
}

/// News of a node.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) node: usize,
    pub(crate) version: u64,
    pub(crate) object: Arc<Node>,
}

/// Events by time, and among those of one time in the order they were made.
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
        let event = self.events.remove(&number).expect("every entry has its event");
        Some((at, event))
    }
}
