//! Simulated pods: their nodes, and their `PodDisruptionBudgets`.

use std::collections::BTreeMap;

use mco_core::drain::PodView;

use super::{Record, World};
use crate::{Budget, Setup, queue::Event};

/// The state of all pods.
#[derive(Default)]
pub(crate) struct Pods {
    all: Vec<PodRecord>,
    on: Vec<Vec<usize>>,
    budgets: Vec<BudgetGroup>,
    blocked: BTreeMap<String, String>,
}

struct PodRecord {
    view: PodView,
    state: State,
    /// True if a controller recreates the pod.
    returns: bool,
    budgets: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    On(usize),
    Leaving(usize),
    Nowhere,
}

struct BudgetGroup {
    name: String,
    running: usize,
    min: usize,
}

impl Pods {
    pub(super) fn new(setup: &Setup, nodes: &[Record]) -> Self {
        let index: BTreeMap<&str, usize> =
            nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
        let mut pods = Self { on: vec![Vec::new(); nodes.len()], ..Self::default() };
        for (number, pod) in setup.pods.iter().enumerate() {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let state =
                node.and_then(|node| index.get(node)).map_or(State::Nowhere, |n| State::On(*n));
            if let State::On(node) = state {
                pods.on.get_mut(node).into_iter().for_each(|on| on.push(number));
            }
            let returns = pod.metadata.owner_references.as_ref().is_some_and(|o| !o.is_empty());
            pods.all.push(PodRecord {
                view: PodView::of(pod),
                state,
                returns,
                budgets: Vec::new(),
            });
        }
        for (number, Budget { name, pods: members, min_available }) in
            setup.budgets.iter().enumerate()
        {
            let mut running = 0;
            for pod in members {
                if let Some(record) = pods.all.get_mut(*pod) {
                    record.budgets.push(number);
                    running += usize::from(matches!(record.state, State::On(_)));
                }
            }
            pods.budgets.push(BudgetGroup { name: name.clone(), running, min: *min_available });
        }
        pods
    }

    /// Returns the cause that blocked the last drain attempt of a node.
    pub(super) fn blocked(&self, node: &str) -> Option<&str> {
        self.blocked.get(node).map(String::as_str)
    }

    /// Returns the pods that a drain has to evict.
    pub(crate) fn to_evict(&self, node: usize) -> Vec<usize> {
        let on = self.on.get(node).map(Vec::as_slice).unwrap_or_default();
        let blocks = |pod: &&usize| self.all.get(**pod).is_some_and(|p| p.view.blocks_drain());
        on.iter().filter(blocks).copied().collect()
    }

    /// Returns the budget that forbids the eviction of a pod.
    fn protected_by(&self, pod: usize) -> Option<&str> {
        let budgets = self.all.get(pod)?.budgets.iter().filter_map(|b| self.budgets.get(*b));
        let full = |group: &&BudgetGroup| group.running <= group.min;
        budgets.into_iter().find(full).map(|group| group.name.as_str())
    }

    fn count(&mut self, pod: usize, change: fn(usize, usize) -> usize) {
        let budgets = self.all.get(pod).map(|record| record.budgets.clone()).unwrap_or_default();
        for budget in budgets {
            if let Some(group) = self.budgets.get_mut(budget) {
                group.running = change(group.running, 1);
            }
        }
    }
}

impl World {
    /// Requests the eviction of all pods on a node; returns true if pods remain.
    pub(crate) fn evict(&mut self, node: usize) -> bool {
        let pods = self.pods.to_evict(node);
        let name = self.node(node).name.clone();
        self.pods.blocked.remove(&name);
        for pod in &pods {
            let state = self.pods.all.get(*pod).map(|record| record.state);
            if state != Some(State::On(node)) {
                continue;
            }
            if let Some(budget) = self.pods.protected_by(*pod) {
                let name_of_pod = self.pods.all.get(*pod).map(|record| record.view.to_string());
                let pod = name_of_pod.unwrap_or_default();
                let why = format!("PodDisruptionBudget {budget} protects pod {pod}");
                self.pods.blocked.insert(name.clone(), why);
                continue;
            }
            self.pods.count(*pod, usize::saturating_sub);
            self.pods.all.get_mut(*pod).into_iter().for_each(|p| p.state = State::Leaving(node));
            self.queue.push(self.now + self.setup.times.leaving, Event::PodGone(*pod));
        }
        !pods.is_empty()
    }

    pub(super) fn pod_gone(&mut self, pod: usize) {
        let Some(record) = self.pods.all.get_mut(pod) else { return };
        let State::Leaving(node) = record.state else { return };
        record.state = State::Nowhere;
        let returns = record.returns;
        self.pods.on.get_mut(node).into_iter().for_each(|on| on.retain(|other| *other != pod));
        if returns {
            self.queue.push(self.now + 1_000, Event::PodPlaced(pod));
        }
    }

    /// Schedules a pod on some schedulable node, or retries later.
    pub(super) fn place(&mut self, pod: usize) {
        let count = self.nodes.len();
        let offset = self.chance.index(count);
        let found =
            (0..count).map(|step| (offset + step) % count.max(1)).find(|n| self.is_schedulable(*n));
        let Some(node) = found else {
            self.queue.push(self.now + 10_000, Event::PodPlaced(pod));
            return;
        };
        self.pods.on.get_mut(node).into_iter().for_each(|on| on.push(pod));
        self.pods.all.get_mut(pod).into_iter().for_each(|record| record.state = State::On(node));
        self.pods.count(pod, usize::saturating_add);
    }
}
