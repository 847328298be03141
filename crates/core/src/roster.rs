//! The nodes of a cluster by pool, kept up to date node by node: what is chosen from and counted.
//!
//! A node's event costs as much as there are pools, however many nodes there are, and says which
//! pools it concerns. Choices, statuses and reasons to wait are those that a look at every node
//! would give; the tests hold the two together.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{MachineConfigPool, MachineConfigPoolStatus};

use crate::{
    membership::{CustomIgnored, Index, MembershipError, Pools},
    progress::Wait,
    rollout::{self, Fleet, Hold, NodeView, Phase, PoolView, RolloutPlan, Verdict},
    status::{self, Around, ImageBuild, NodeReport, Tally},
};

/// All nodes, in their pools.
#[derive(Clone, Debug)]
pub struct Roster {
    index: Index,
    squads: BTreeMap<String, Squad>,
    /// What daemons say, also those whose node has not been seen yet.
    reports: BTreeMap<String, NodeReport>,
}

/// The nodes of one pool.
#[derive(Clone, Debug)]
struct Squad {
    fleet: Fleet,
    tally: Tally,
    /// What the last choice means for those who wait.
    verdict: Option<Verdict>,
}

impl Default for Roster {
    fn default() -> Self {
        Self::new([])
    }
}

impl Roster {
    /// No nodes yet.
    #[must_use]
    pub fn new<'a>(pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> Self {
        let pools: Vec<&MachineConfigPool> = pools.into_iter().collect();
        let squad = |pool: &&MachineConfigPool| {
            let name = pool.metadata.name.clone().unwrap_or_default();
            let squad = Squad {
                fleet: Fleet::toward(&pool.spec.configuration.rendered.name),
                tally: Tally::new(pool, &ImageBuild::default()),
                verdict: None,
            };
            (name, squad)
        };
        Self {
            squads: pools.iter().map(squad).collect(),
            index: Index::new(Pools::new(pools)),
            reports: BTreeMap::new(),
        }
    }

    /// Whether these pools are the ones it knows and select nodes as they did.
    #[must_use]
    pub fn knows<'a>(&self, pools: impl IntoIterator<Item = &'a MachineConfigPool>) -> bool {
        let pools: Vec<&MachineConfigPool> = pools.into_iter().collect();
        let known = |pool: &&MachineConfigPool| {
            pool.metadata.name.as_ref().is_some_and(|name| self.squads.contains_key(name))
        };
        pools.len() == self.squads.len()
            && pools.iter().all(known)
            && *self.index.pools() == Pools::new(pools)
    }

    /// Starts over with other pools, or with pools that select other nodes.
    pub fn replace<'a, 'n>(
        &mut self,
        pools: impl IntoIterator<Item = &'a MachineConfigPool>,
        nodes: impl IntoIterator<Item = (NodeView, &'n BTreeMap<String, String>)>,
    ) {
        let mut new = Self::new(pools);
        new.reports = std::mem::take(&mut self.reports);
        for (name, squad) in &mut new.squads {
            squad.verdict = self.squads.remove(name).and_then(|known| known.verdict);
        }
        *self = new;
        for (node, labels) in nodes {
            self.set_node(node, labels);
        }
    }

    /// Takes in a node, new or changed; gives the pools that have to look again, if any.
    pub fn set_node(&mut self, node: NodeView, labels: &BTreeMap<String, String>) -> Vec<String> {
        let moved = self.index.set(&node.name, labels);
        let stays = moved.from == moved.to;
        let known =
            moved.to.as_ref().and_then(|pool| self.squads.get(pool)?.fleet.node(&node.name));
        if stays && (moved.to.is_none() || known == Some(&node)) {
            return Vec::new();
        }
        if let Some(from) = moved.from.as_ref().filter(|_| !stays) {
            self.dismiss(from, &node.name);
        }
        let report = self.reports.get(&node.name);
        if let Some(squad) = moved.to.as_ref().and_then(|pool| self.squads.get_mut(pool)) {
            squad.tally.put(&node, report);
            squad.fleet.set(node);
        }
        moved.pools().map(str::to_owned).collect()
    }

    /// Lets go of a node that is gone; gives the pool that has to look again, if any.
    pub fn forget_node(&mut self, node: &str) -> Vec<String> {
        let moved = self.index.forget(node);
        if let Some(from) = &moved.from {
            self.dismiss(from, node);
        }
        moved.from.into_iter().collect()
    }

    fn dismiss(&mut self, pool: &str, node: &str) {
        if let Some(squad) = self.squads.get_mut(pool) {
            squad.fleet.forget(node);
            squad.tally.remove(node);
        }
    }

    /// Takes in what a node's daemon says; gives the pool that has to look again, if any.
    pub fn set_report(&mut self, report: NodeReport) -> Option<String> {
        if self.reports.get(&report.node) == Some(&report) {
            return None;
        }
        let node = report.node.clone();
        self.reports.insert(node.clone(), report);
        self.recount(&node)
    }

    /// Lets go of what a daemon said; gives the pool that has to look again, if any.
    pub fn forget_report(&mut self, node: &str) -> Option<String> {
        self.reports.remove(node)?;
        self.recount(node)
    }

    fn recount(&mut self, node: &str) -> Option<String> {
        let pool = self.index.pool_of(node).ok().flatten()?.to_owned();
        let squad = self.squads.get_mut(&pool)?;
        squad.tally.put(squad.fleet.node(node)?, self.reports.get(node));
        Some(pool)
    }

    /// The pool that manages a node, or why that cannot be said.
    pub fn pool_of(&self, node: &str) -> Result<Option<&str>, &MembershipError> {
        self.index.pool_of(node)
    }

    /// Whether a custom pool fits the node as well and is not heard; `None` for unknown nodes.
    #[must_use]
    pub fn custom_ignored(&self, node: &str) -> Option<CustomIgnored> {
        self.index.custom_ignored(node)
    }

    /// The nodes of a pool.
    #[must_use]
    pub fn fleet(&self, pool: &str) -> Option<&Fleet> {
        self.squads.get(pool).map(|squad| &squad.fleet)
    }

    /// Chooses whom to tell; `other` is the other half of a control plane with an arbiter.
    ///
    /// Who waits is not in the plan: each node can be asked for, see `wait`.
    pub fn choose(&mut self, pool: &PoolView, other: Option<&PoolView>) -> RolloutPlan {
        let nobody = || Squad {
            fleet: Fleet::toward(&pool.target),
            tally: Tally::new(&MachineConfigPool::default(), &ImageBuild::default()),
            verdict: None,
        };
        let Some(other) = other else {
            return self.squads.entry(pool.name.clone()).or_insert_with(nobody).fleet.choose(pool);
        };
        // Both are needed at once, so that one is taken out for the moment.
        let mut ours = self.squads.remove(&pool.name).unwrap_or_else(nobody);
        let theirs = &mut self.squads.entry(other.name.clone()).or_insert_with(nobody).fleet;
        let plan = if pool.name == "master" {
            rollout::choose_control_plane((pool, &mut ours.fleet), (other, theirs)).0
        } else {
            rollout::choose_control_plane((other, theirs), (pool, &mut ours.fleet)).1
        };
        self.squads.insert(pool.name.clone(), ours);
        plan
    }

    /// Takes note of what the last choice means for those who wait; says whether that is new.
    pub fn judge(&mut self, pool: &str, verdict: Verdict) -> bool {
        let Some(squad) = self.squads.get_mut(pool) else { return false };
        squad.fleet.retarget(&verdict.target);
        let is_new = squad.verdict.as_ref() != Some(&verdict);
        squad.verdict = Some(verdict);
        is_new
    }

    /// What a node waits for, and why; `None` if it does not wait.
    #[must_use]
    pub fn wait(&self, node: &str) -> Option<Wait> {
        let squad = self.squads.get(self.index.pool_of(node).ok()??)?;
        let verdict = squad.verdict.as_ref()?;
        let hold = squad.fleet.hold(node, verdict)?;
        Some(Wait { target: verdict.target.clone(), hold })
    }

    /// Why each node of a pool waits that would not be told now; for those who only look.
    pub fn holds(&mut self, pool: &MachineConfigPool) -> Vec<(String, Hold)> {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let target = &pool.spec.configuration.rendered.name;
        let members = self.fleet(name).map(|fleet| fleet.tally().machines).unwrap_or_default();
        if target.is_empty() {
            return Vec::new();
        }
        let (verdict, starts) = match PoolView::of(pool, members) {
            Ok(view) => {
                let plan = self.choose(&view, None);
                (Verdict::of(&view, &plan), plan.starts)
            }
            Err(fault) => {
                let refusal = Hold::BadLimit(fault);
                (Verdict::refused(target, Phase::of(pool), refusal), Vec::new())
            }
        };
        if let Some(squad) = self.squads.get_mut(name) {
            squad.fleet.retarget(target);
        }
        let starts: BTreeSet<String> = starts.into_iter().collect();
        let Some(fleet) = self.fleet(name) else { return Vec::new() };
        let waiting = fleet.nodes().filter(|node| !starts.contains(&node.name));
        waiting
            .filter_map(|node| Some((node.name.clone(), fleet.hold(&node.name, &verdict)?)))
            .collect()
    }

    /// The pool's new status; `None` for unknown pools.
    pub fn status(
        &mut self,
        pool: &MachineConfigPool,
        around: &Around<'_>,
        now: &Time,
    ) -> Option<MachineConfigPoolStatus> {
        let squad = self.squads.get_mut(pool.metadata.name.as_deref()?)?;
        if !squad.tally.is_toward(pool, &around.image_build) {
            squad.tally = Tally::new(pool, &around.image_build);
            for node in squad.fleet.nodes() {
                squad.tally.put(node, self.reports.get(&node.name));
            }
        }
        Some(status::tallied(pool, &squad.tally, around, now))
    }
}

#[cfg(test)]
mod tests;
