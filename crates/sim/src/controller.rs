//! The simulated controller: its caches, and the real selection of nodes from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Node;
use mco_api::{MachineConfigPool, annotation};
use mco_core::rollout::{
    self, BuiltImages, ControlPlanePeer, Cordon, Hold, NodeView, PoolNodes, PoolPhase, PoolView,
};

use crate::{
    Fault, Invariant, Millis,
    queue::{Event, WatchEvent},
    world::{World, annotate},
};

/// The state of the controller.
#[derive(Default)]
pub(crate) struct Controller {
    pub(crate) up: bool,
    pools: Vec<MachineConfigPool>,
    nodes_by_pool: BTreeMap<String, PoolNodes>,
    versions: BTreeMap<usize, u64>,
    /// Nodes of the cache.
    pub(crate) seen: BTreeMap<usize, Arc<Node>>,
    queued: BTreeSet<String>,
    index: BTreeMap<String, usize>,
    /// Start time of each drain.
    pub(crate) drains: BTreeMap<usize, Millis>,
}

impl Controller {
    /// Returns the version of a node in the cache.
    pub(crate) fn version(&self, node: usize) -> u64 {
        self.versions.get(&node).copied().unwrap_or_default()
    }

    /// Returns the waiting nodes of a pool, according to the controller's cache.
    pub(crate) fn last_plan(&self, pool: &str) -> Vec<(String, Hold)> {
        let (Some(view), Some(pool_nodes)) = (self.view(pool), self.nodes_by_pool.get(pool)) else {
            return Vec::new();
        };
        let mut pool_nodes = pool_nodes.clone();
        let plan = pool_nodes.select(&view);
        pool_nodes.holds(&view, &plan)
    }

    fn view(&self, name: &str) -> Option<PoolView> {
        let pool = self.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name))?;
        let members = self.nodes_by_pool.get(name).map(|pool_nodes| pool_nodes.counts().machines);
        let limit = pool.spec.max_unavailable.as_ref();
        Some(PoolView {
            name: name.to_owned(),
            target: pool.spec.configuration.rendered.name.clone(),
            phase: if pool.spec.paused { PoolPhase::Paused } else { PoolPhase::Active },
            max_unavailable: rollout::max_unavailable(name, limit, members.unwrap_or_default())
                .ok()?,
            operator_node: None,
            neighbour: ControlPlanePeer::default(),
            built_images: BuiltImages::default(),
        })
    }
}

impl World {
    /// Starts a leader: lists all objects, then watches.
    pub(crate) fn controller_up(&mut self) {
        let index = self.nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index));
        self.controller = Controller {
            up: true,
            pools: self.setup.pools.clone(),
            index: index.collect(),
            ..Controller::default()
        };
        for node in 0..self.nodes.len() {
            let record = self.node(node);
            let (version, object) = (record.version, record.object.clone());
            self.controller_receives(&WatchEvent { node, version, object });
        }
    }

    pub(crate) fn controller_down(&mut self, pause: Millis, why: &str) {
        self.log("controller", why.to_owned());
        self.controller.up = false;
        self.queue.push(self.now + pause, Event::ControllerUp);
    }

    pub(crate) fn restart_controller(&mut self) {
        if self.controller.up {
            self.controller_down(2_000, "restarting");
        }
    }

    pub(crate) fn controller_sees_pools(&mut self) {
        if !self.controller.up {
            return;
        }
        self.controller.pools.clone_from(&self.setup.pools);
        let names: Vec<String> = self.controller.nodes_by_pool.keys().cloned().collect();
        for pool in names {
            self.enqueue(pool);
        }
    }

    pub(crate) fn controller_receives(&mut self, event: &WatchEvent) {
        if !self.controller.up || event.version <= self.controller.version(event.node) {
            return;
        }
        self.update_cache(event.node, event.version, &event.object);
        if let Some(pool) = self.node(event.node).pool.clone() {
            self.enqueue(pool);
        }
        self.drain_receives(event.node, &event.object);
    }

    pub(crate) fn update_cache(&mut self, node: usize, version: u64, object: &Arc<Node>) {
        self.controller.versions.insert(node, version);
        self.controller.seen.insert(node, object.clone());
        let labels = object.metadata.labels.as_ref();
        let found = labels.and_then(|labels| self.membership.of("", labels).ok());
        let Some(pool) = found.as_ref().and_then(|found| found.primary()) else { return };
        self.controller.nodes_by_pool.entry(pool.to_owned()).or_default().set(NodeView::of(object));
    }

    pub(crate) fn enqueue(&mut self, pool: String) {
        if self.controller.queued.insert(pool.clone()) {
            self.queue.push(self.now + self.setup.times.settle, Event::Sync(pool));
        }
    }

    /// Selects nodes with the real code and writes the result.
    pub(crate) fn sync(&mut self, name: &str) {
        if !self.controller.queued.remove(name) || !self.controller.up {
            return;
        }
        let Some(pool) = self.controller.view(name) else { return };
        let chooser = self.setup.chooser;
        let Some(pool_nodes) = self.controller.nodes_by_pool.get_mut(name) else { return };
        let plan = chooser(pool_nodes, &pool);
        for node in &plan.starts {
            self.check_start(&pool, node);
            let Some(index) = self.controller.index.get(node).copied() else { continue };
            if self.fault_occurs(Fault::Conflict) {
                self.log_node(index, "not targeted: the API server refused the write");
                self.enqueue(name.to_owned());
                continue;
            }
            let repaired = plan.repairs.contains(node);
            let how = if repaired { "retargeted without a slot" } else { "targeted" };
            self.log_node(index, &format!("{how} to {}", plan.target));
            self.write(index, |object| {
                annotate(object, annotation::DESIRED_CONFIG.name(), &plan.target);
                if let Some(all) = object.metadata.annotations.as_mut() {
                    all.remove(annotation::DESIRED_IMAGE.name());
                }
            });
            // The response to the write has the new object, before any watch.
            let record = self.node(index);
            let (version, object) = (record.version, record.object.clone());
            self.update_cache(index, version, &object);
        }
        if !plan.starts.is_empty() {
            self.after_decision();
        }
    }

    fn check_start(&mut self, pool: &PoolView, node: &str) {
        if pool.phase != PoolPhase::Active {
            self.violate(Invariant::PausedMeansPaused, node);
        }
        let view = self
            .controller
            .nodes_by_pool
            .get(&pool.name)
            .and_then(|pool_nodes| pool_nodes.node(node));
        if view.is_some_and(|view| view.cordon == Cordon::User) {
            self.violate(Invariant::UserCordon, node);
        }
    }

    fn after_decision(&mut self) {
        if self.fault_occurs(Fault::ControllerRestart) {
            self.restart_controller();
        } else if self.fault_occurs(Fault::LeaderChange) {
            self.controller_down(15_000, "lost the lease; another process becomes leader");
        }
        if self.fault_occurs(Fault::Blip) {
            // One node, or a whole rack.
            let (first, count) = (self.chance.index(self.nodes.len()), self.chance.index(5));
            for node in (first..self.nodes.len()).take(1 + count) {
                self.blip(node);
            }
        }
    }
}
