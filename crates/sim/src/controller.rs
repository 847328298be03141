//! The controller: its caches, and the real choice of nodes made on them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use mco_api::{MachineConfigPool, annotation};
use mco_core::rollout::{self, Cordon, Fleet, Hold, Neighbour, NodeView, Phase, PoolView};

use crate::{
    Fault, Millis, Rule,
    queue::{Event, Notice},
    world::{World, annotate},
};

/// What the controller knows.
#[derive(Default)]
pub(crate) struct Controller {
    pub(crate) up: bool,
    pools: Vec<MachineConfigPool>,
    fleets: BTreeMap<String, Fleet>,
    versions: BTreeMap<usize, u64>,
    queued: BTreeSet<String>,
    index: BTreeMap<String, usize>,
    /// Since when each drain has been going on.
    pub(crate) drains: BTreeMap<usize, Millis>,
}

impl Controller {
    /// Who waits in a pool, by what the controller knows.
    pub(crate) fn last_plan(&self, pool: &str) -> Vec<(String, Hold)> {
        let (Some(view), Some(fleet)) = (self.view(pool), self.fleets.get(pool)) else {
            return Vec::new();
        };
        let mut fleet = fleet.clone();
        let plan = fleet.choose(&view);
        fleet.holds(&view, &plan)
    }

    fn view(&self, name: &str) -> Option<PoolView> {
        let pool = self.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name))?;
        let members = self.fleets.get(name).map(|fleet| fleet.tally().machines);
        let limit = pool.spec.max_unavailable.as_ref();
        Some(PoolView {
            name: name.to_owned(),
            target: pool.spec.configuration.rendered.name.clone(),
            phase: if pool.spec.paused { Phase::Paused } else { Phase::Active },
            max_unavailable: rollout::max_unavailable(name, limit, members.unwrap_or_default())
                .ok()?,
            operator_node: None,
            neighbour: Neighbour::default(),
        })
    }
}

impl World {
    /// A process starts to lead: it lists everything, then watches.
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
            self.controller_hears(&Notice { node, version, object });
        }
    }

    pub(crate) fn controller_down(&mut self, pause: Millis, why: &str) {
        self.note("controller", why.to_owned());
        self.controller.up = false;
        self.queue.push(self.now + pause, Event::ControllerUp);
    }

    pub(crate) fn controller_sees_pools(&mut self) {
        if !self.controller.up {
            return;
        }
        self.controller.pools.clone_from(&self.setup.pools);
        let names: Vec<String> = self.controller.fleets.keys().cloned().collect();
        for pool in names {
            self.look_at(pool);
        }
    }

    pub(crate) fn controller_hears(&mut self, notice: &Notice) {
        let known = self.controller.versions.get(&notice.node).copied().unwrap_or_default();
        if !self.controller.up || notice.version <= known {
            return;
        }
        self.learn(notice.node, notice.version, &notice.object);
        if let Some(pool) = self.node(notice.node).pool.clone() {
            self.look_at(pool);
        }
        self.drain_hears(notice.node, &notice.object);
    }

    fn learn(&mut self, node: usize, version: u64, object: &Node) {
        self.controller.versions.insert(node, version);
        let labels = object.metadata.labels.as_ref();
        let found = labels.and_then(|labels| self.membership.of("", labels).ok());
        let Some(pool) = found.as_ref().and_then(|found| found.primary()) else { return };
        self.controller.fleets.entry(pool.to_owned()).or_default().set(NodeView::of(object));
    }

    fn look_at(&mut self, pool: String) {
        if self.controller.queued.insert(pool.clone()) {
            self.queue.push(self.now + self.setup.pace.settle, Event::Sync(pool));
        }
    }

    /// Makes the real choice and writes it.
    pub(crate) fn sync(&mut self, name: &str) {
        if !self.controller.queued.remove(name) || !self.controller.up {
            return;
        }
        let Some(pool) = self.controller.view(name) else { return };
        let chooser = self.setup.chooser;
        let Some(fleet) = self.controller.fleets.get_mut(name) else { return };
        let plan = chooser(fleet, &pool);
        for node in &plan.starts {
            self.check_start(&pool, node);
            let Some(index) = self.controller.index.get(node).copied() else { continue };
            if self.strikes(Fault::Conflict) {
                self.say(index, "is not told: the API server refused the write");
                self.look_at(name.to_owned());
                continue;
            }
            let repaired = plan.repairs.contains(node);
            let how = if repaired { "is told without a slot to run" } else { "is told to run" };
            self.say(index, &format!("{how} {}", plan.target));
            self.write(index, |object| {
                annotate(object, annotation::DESIRED_CONFIG.name(), &plan.target);
                if let Some(all) = object.metadata.annotations.as_mut() {
                    all.remove(annotation::DESIRED_IMAGE.name());
                }
            });
            // The answer to the write tells what is there now, before any watch does.
            let record = self.node(index);
            let (version, object) = (record.version, record.object.clone());
            self.learn(index, version, &object);
        }
        if !plan.starts.is_empty() {
            self.after_decision();
        }
    }

    fn check_start(&mut self, pool: &PoolView, node: &str) {
        if pool.phase != Phase::Active {
            self.broke(Rule::PausedMeansPaused, node);
        }
        let view = self.controller.fleets.get(&pool.name).and_then(|fleet| fleet.node(node));
        if view.is_some_and(|view| view.cordon == Cordon::Theirs) {
            self.broke(Rule::TheirCordon, node);
        }
    }

    fn after_decision(&mut self) {
        if self.strikes(Fault::ControllerRestart) {
            self.controller_down(2_000, "restarts");
        } else if self.strikes(Fault::LeaderChange) {
            self.controller_down(15_000, "leads no more; another process will");
        }
        if self.strikes(Fault::Blip) {
            // One node, or a whole rack.
            let (first, count) = (self.chance.index(self.nodes.len()), self.chance.index(5));
            for node in (first..self.nodes.len()).take(1 + count) {
                self.blip(node);
            }
        }
    }
}
