//! An index of the cluster's nodes by pool, updated node by node, for selection and status.
//!
//! A node event costs time in proportion to the number of pools, independent of the number of
//! nodes, and returns the pools to reconcile. Selections, statuses and reasons to wait equal those
//! of a full scan of all nodes; the tests compare the two.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{MachineConfigPool, MachineConfigPoolStatus};

use crate::{
    machine_config_node::PendingUpdate,
    membership::{CustomIgnored, MembershipError, MembershipIndex, Pools},
    rollout::{self, Hold, NodeView, PoolNodes, PoolPhase, PoolView, RolloutDecision, RolloutPlan},
    status::{self, ImageBuild, MachineConfigNodeView, StatusContext, StatusCounter},
};

/// All nodes, indexed by pool.
#[derive(Clone, Debug)]
pub struct NodeIndex {
    index: MembershipIndex,
    entries: BTreeMap<String, PoolEntry>,
    /// State of the `MachineConfigNodes`, also of nodes that are not known yet.
    reports: BTreeMap<String, MachineConfigNodeView>,
}

/// The nodes of one pool.
#[derive(Clone, Debug)]
struct PoolEntry {
    pool_nodes: PoolNodes,
    counter: StatusCounter,
    /// Result of the last selection for the waiting nodes.
    decision: Option<RolloutDecision>,
}

impl Default for NodeIndex {
    fn default() -> Self {
        Self::new([])
    }
}

impl NodeIndex {
    /// Creates an index without nodes.
    #[must_use]
    pub fn new<'a>(pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> Self {
        let pools: Vec<&MachineConfigPool> = pools.into_iter().collect();
        let entry = |pool: &&MachineConfigPool| {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let entry = PoolEntry {
                pool_nodes: PoolNodes::with_target(&pool.spec.configuration.rendered.name),
                counter: StatusCounter::new(pool, &ImageBuild::default()),
                decision: None,
            };
            (name, entry)
        };
        Self {
            entries: pools.iter().map(entry).collect(),
            index: MembershipIndex::new(Pools::new(pools)),
            reports: BTreeMap::new(),
        }
    }

    /// Returns true if the index has exactly these pools, with the same node selectors.
    #[must_use]
    pub fn has_pools<'a>(&self, pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> bool {
        let pools: Vec<&MachineConfigPool> = pools.into_iter().collect();
        let known = |pool: &&MachineConfigPool| {
            pool.metadata.name.as_ref().is_some_and(|name| self.entries.contains_key(name))
        };
        pools.len() == self.entries.len()
            && pools.iter().all(known)
            && *self.index.pools() == Pools::new(pools)
    }

    /// Rebuilds the index for changed pools or node selectors.
    pub fn replace<'a, 'n>(
        &mut self,
        pools: impl IntoIterator<Item = &'a MachineConfigPool>,
        nodes: impl IntoIterator<Item = (NodeView, &'n BTreeMap<String, String>)>,
    ) {
        let mut new = Self::new(pools);
        new.reports = std::mem::take(&mut self.reports);
        for (name, entry) in &mut new.entries {
            entry.decision = self.entries.remove(name).and_then(|known| known.decision);
        }
        *self = new;
        for (node, labels) in nodes {
            self.set_node(node, labels);
        }
    }

    /// Adds or updates a node; returns the pools to reconcile, if any.
    pub fn set_node(&mut self, node: NodeView, labels: &BTreeMap<String, String>) -> Vec<String> {
        let moved = self.index.set(&node.name, labels);
        let stays = moved.from == moved.to;
        let known =
            moved.to.as_ref().and_then(|pool| self.entries.get(pool)?.pool_nodes.node(&node.name));
        if stays && (moved.to.is_none() || known == Some(&node)) {
            return Vec::new();
        }
        if let Some(from) = moved.from.as_ref().filter(|_| !stays) {
            self.remove_from(from, &node.name);
        }
        let report = self.reports.get(&node.name);
        if let Some(entry) = moved.to.as_ref().and_then(|pool| self.entries.get_mut(pool)) {
            entry.counter.put(&node, report);
            entry.pool_nodes.set(node);
        }
        moved.pools().map(str::to_owned).collect()
    }

    /// Removes a deleted node; returns the pool to reconcile, if any.
    pub fn remove_node(&mut self, node: &str) -> Vec<String> {
        let moved = self.index.remove(node);
        if let Some(from) = &moved.from {
            self.remove_from(from, node);
        }
        moved.from.into_iter().collect()
    }

    fn remove_from(&mut self, pool: &str, node: &str) {
        if let Some(entry) = self.entries.get_mut(pool) {
            entry.pool_nodes.remove(node);
            entry.counter.remove(node);
        }
    }

    /// Updates the MachineConfigNode of a node; returns the pool to reconcile, if any.
    pub fn set_machine_config_node(&mut self, report: MachineConfigNodeView) -> Option<String> {
        if self.reports.get(&report.node) == Some(&report) {
            return None;
        }
        let node = report.node.clone();
        self.reports.insert(node.clone(), report);
        self.recount(&node)
    }

    /// Removes a deleted MachineConfigNode; returns the pool to reconcile, if any.
    pub fn remove_machine_config_node(&mut self, node: &str) -> Option<String> {
        self.reports.remove(node)?;
        self.recount(node)
    }

    fn recount(&mut self, node: &str) -> Option<String> {
        let pool = self.index.pool_of(node).ok().flatten()?.to_owned();
        let entry = self.entries.get_mut(&pool)?;
        entry.counter.put(entry.pool_nodes.node(node)?, self.reports.get(node));
        Some(pool)
    }

    /// Returns the pool that manages a node, or the reason why it cannot be determined.
    pub fn pool_of(&self, node: &str) -> Result<Option<&str>, &MembershipError> {
        self.index.pool_of(node)
    }

    /// Returns `Yes` if a matching custom pool is ignored for the node; `None` for unknown nodes.
    #[must_use]
    pub fn custom_ignored(&self, node: &str) -> Option<CustomIgnored> {
        self.index.custom_ignored(node)
    }

    /// Returns the nodes of a pool.
    #[must_use]
    pub fn pool_nodes(&self, pool: &str) -> Option<&PoolNodes> {
        self.entries.get(pool).map(|entry| &entry.pool_nodes)
    }

    /// Selects the nodes to update; `other` is the other control plane pool of a cluster with an
    /// arbiter.
    ///
    /// The waiting nodes are not in the plan: see `wait` for a single node.
    pub fn choose(&mut self, pool: &PoolView, other: Option<&PoolView>) -> RolloutPlan {
        let empty = || PoolEntry {
            pool_nodes: PoolNodes::with_target(&pool.target),
            counter: StatusCounter::new(&MachineConfigPool::default(), &ImageBuild::default()),
            decision: None,
        };
        let Some(other) = other else {
            return self
                .entries
                .entry(pool.name.clone())
                .or_insert_with(empty)
                .pool_nodes
                .select(pool);
        };
        // Two entries are borrowed mutably at once, so one is removed temporarily.
        let mut this = self.entries.remove(&pool.name).unwrap_or_else(empty);
        let others = &mut self.entries.entry(other.name.clone()).or_insert_with(empty).pool_nodes;
        let plan = if pool.name == "master" {
            rollout::choose_control_plane((pool, &mut this.pool_nodes), (other, others)).0
        } else {
            rollout::choose_control_plane((other, others), (pool, &mut this.pool_nodes)).1
        };
        self.entries.insert(pool.name.clone(), this);
        plan
    }

    /// Stores the result of the last selection for the waiting nodes; returns true if it changed.
    pub fn set_decision(&mut self, pool: &str, decision: RolloutDecision) -> bool {
        let Some(entry) = self.entries.get_mut(pool) else { return false };
        entry.pool_nodes.retarget(&decision.target);
        let is_new = entry.decision.as_ref() != Some(&decision);
        entry.decision = Some(decision);
        is_new
    }

    /// Returns the config that a node waits for and the reason; `None` if the node does not wait.
    #[must_use]
    pub fn pending_update(&self, node: &str) -> Option<PendingUpdate> {
        let entry = self.entries.get(self.index.pool_of(node).ok()??)?;
        let decision = entry.decision.as_ref()?;
        let hold = entry.pool_nodes.hold(node, decision)?;
        Some(PendingUpdate { target: decision.target.clone(), hold })
    }

    /// Returns the reason to wait of each node of a pool that would not be selected now; changes
    /// nothing in the cluster.
    pub fn holds(&mut self, pool: &MachineConfigPool) -> Vec<(String, Hold)> {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let target = &pool.spec.configuration.rendered.name;
        let members = self
            .pool_nodes(name)
            .map(|pool_nodes| pool_nodes.counts().machines)
            .unwrap_or_default();
        if target.is_empty() {
            return Vec::new();
        }
        let (decision, starts) = match PoolView::of(pool, members) {
            Ok(view) => {
                let plan = self.choose(&view, None);
                (RolloutDecision::of(&view, &plan), plan.starts)
            }
            Err(fault) => {
                let refusal = Hold::BadLimit(fault);
                (RolloutDecision::refused(target, PoolPhase::of(pool), refusal), Vec::new())
            }
        };
        if let Some(entry) = self.entries.get_mut(name) {
            entry.pool_nodes.retarget(target);
        }
        let starts: BTreeSet<String> = starts.into_iter().collect();
        let Some(pool_nodes) = self.pool_nodes(name) else { return Vec::new() };
        let waiting = pool_nodes.nodes().filter(|node| !starts.contains(&node.name));
        waiting
            .filter_map(|node| Some((node.name.clone(), pool_nodes.hold(&node.name, &decision)?)))
            .collect()
    }

    /// Computes the pool's new status; `None` for unknown pools.
    pub fn status(
        &mut self,
        pool: &MachineConfigPool,
        around: &StatusContext<'_>,
        now: &Time,
    ) -> Option<MachineConfigPoolStatus> {
        let entry = self.entries.get_mut(pool.metadata.name.as_deref()?)?;
        if !entry.counter.is_toward(pool, &around.image_build) {
            entry.counter = StatusCounter::new(pool, &around.image_build);
            for node in entry.pool_nodes.nodes() {
                entry.counter.put(node, self.reports.get(&node.name));
            }
        }
        Some(status::from_counter(pool, &entry.counter, around, now))
    }
}

#[cfg(test)]
mod tests;
