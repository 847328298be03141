//! Progress of a cluster: the phase of each node, its start, what the node waits for and what happens
//! next.
//!
//! The phases follow from the decisions that the controller makes on the same objects, so that a status
//! never promises what the controller does not do.

mod pace;
mod phase;
mod reported;
mod sentence;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
};
use mco_api::{
    MachineConfigNode, MachineConfigPool,
    annotation::{self, DrainRecord},
    condition::NodeCondition,
};
use serde::Serialize;

pub use self::{
    pace::{PaceOf, TimeLeft},
    phase::Phase,
};
use crate::{
    node_index::NodeIndex,
    rollout::{Hold, NodeView, PoolNodes, PoolView, RolloutCounts},
    status::explain,
};

/// The objects that the progress is read from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'o> {
    /// All pools.
    pub pools: &'o [&'o MachineConfigPool],
    /// All nodes.
    pub nodes: &'o [&'o Node],
    /// MachineConfigNodes, which have the start of each phase; none if they cannot be read.
    pub reports: &'o [&'o MachineConfigNode],
}

/// The progress of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Pools by name.
    pub pools: Vec<PoolProgress>,
    /// Nodes by name.
    pub nodes: Vec<NodeProgress>,
}

/// The progress of one pool. The numbers count nodes by the phase that [`NodeProgress`] gives.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolProgress {
    /// Name of the pool.
    pub name: String,
    /// Config that the nodes are to run; empty until the pool is rendered.
    pub target: String,
    /// True if the pool starts no update.
    pub paused: bool,
    /// Number of nodes.
    pub machines: usize,
    /// Number of nodes in phase Done.
    pub done: usize,
    /// Number of nodes in phase Done that are ready.
    pub ready: usize,
    /// Number of nodes in phase Degraded.
    pub degraded: usize,
    /// Number of nodes between the start and the end of their update.
    pub updating: usize,
    /// Time until all nodes are in phase Done, if it can be estimated.
    pub left: Option<TimeLeft>,
    /// Faults of the pool itself, with the remedy.
    pub faults: Vec<String>,
}

/// The progress of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeProgress {
    /// Name of the node.
    pub name: String,
    /// Pool of the node, if there is exactly one.
    pub pool: Option<String>,
    /// Phase of the node.
    pub phase: Phase,
    /// Start of the phase, if known.
    pub since: Option<Time>,
    /// Config that the node runs; empty if its daemon has not reported.
    pub current: String,
    /// Config that the node is to run.
    pub target: String,
    /// Cause of the wait; `None` if the node does not wait.
    pub waits_for: Option<String>,
    /// Next step of the update, or the remedy that the administrator applies.
    pub next: Option<String>,
    /// True if nothing continues without the administrator.
    pub stuck: bool,
}

/// A node with the decisions about it.
struct Member<'o> {
    node: &'o Node,
    view: NodeView,
    report: Option<&'o MachineConfigNode>,
    hold: Option<Hold>,
}

impl Member<'_> {
    /// Returns true if the daemon reports that the machine has rebooted for its update.
    fn has_rebooted(&self) -> bool {
        self.reported(&NodeCondition::RebootedNode).is_some()
    }

    /// Returns the condition of the MachineConfigNode if it is True.
    fn reported(&self, kind: &NodeCondition) -> Option<&Condition> {
        let conditions = self.report?.status.as_ref()?.conditions.iter();
        let mut conditions = conditions.filter(|it| it.type_ == kind.as_str());
        conditions.find(|it| it.status == "True")
    }
}

/// Reads the progress of a cluster.
#[must_use]
pub fn of(objects: Objects<'_>) -> Progress {
    let mut index = NodeIndex::new(objects.pools.iter().copied());
    for node in objects.nodes {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        index.set_node(NodeView::of(node), &labels);
    }
    let lookup = Lookup {
        nodes: objects.nodes.iter().map(|node| (name_of(&node.metadata), *node)).collect(),
        reports: objects.reports.iter().map(|it| (name_of(&it.metadata), *it)).collect(),
    };
    let mut progress = Progress::default();
    for pool in objects.pools {
        let name = name_of(&pool.metadata);
        let mut holds: BTreeMap<String, Hold> = index.holds(pool).into_iter().collect();
        let fleet = index.pool_nodes(name);
        let counts = fleet.map(PoolNodes::counts).unwrap_or_default();
        let views = fleet.into_iter().flat_map(PoolNodes::nodes).cloned();
        let target = &pool.spec.configuration.rendered.name;
        let members: Vec<Member<'_>> =
            views.filter_map(|view| lookup.member(view, target, &mut holds)).collect();
        let nodes = nodes(pool, &members);
        let left = pace::time_left(pool, &members, &nodes);
        progress.pools.push(PoolProgress { left, ..pool_progress(pool, counts, &nodes) });
        progress.nodes.extend(nodes);
    }
    let known: BTreeSet<&str> = progress.nodes.iter().map(|node| node.name.as_str()).collect();
    let outside = objects.nodes.iter().filter(|node| !known.contains(name_of(&node.metadata)));
    let outside: Vec<NodeProgress> = outside.map(|node| without_pool(&index, node)).collect();
    progress.nodes.extend(outside);
    progress.nodes.sort_by(|left, right| left.name.cmp(&right.name));
    progress.pools.sort_by(|left, right| left.name.cmp(&right.name));
    progress
}

impl Progress {
    /// Returns true if there are pools, and every node of each runs its config.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let is_done = |pool: &PoolProgress| pool.done == pool.machines && pool.faults.is_empty();
        !self.pools.is_empty() && self.pools.iter().all(is_done)
    }

    /// Returns the part about one pool and its nodes, or about one node and its pool; `None` if neither
    /// has this name.
    #[must_use]
    pub fn about(&self, name: &str) -> Option<Self> {
        let node = self.nodes.iter().find(|node| node.name == name);
        let pool = match node {
            Some(node) => node.pool.as_deref(),
            None => Some(self.pools.iter().find(|pool| pool.name == name)?.name.as_str()),
        };
        let is_shown = |other: &&NodeProgress| match node {
            Some(node) => other.name == node.name,
            None => other.pool.as_deref() == pool,
        };
        let pools = self.pools.iter().filter(|other| Some(other.name.as_str()) == pool);
        let nodes = self.nodes.iter().filter(is_shown);
        Some(Self { pools: pools.cloned().collect(), nodes: nodes.cloned().collect() })
    }
}

/// The objects by name.
struct Lookup<'o> {
    nodes: BTreeMap<&'o str, &'o Node>,
    reports: BTreeMap<&'o str, &'o MachineConfigNode>,
}

impl<'o> Lookup<'o> {
    fn member(
        &self,
        view: NodeView,
        target: &str,
        holds: &mut BTreeMap<String, Hold>,
    ) -> Option<Member<'o>> {
        let node = self.nodes.get(view.name.as_str())?;
        let report = self.reports.get(view.name.as_str()).copied();
        let reported = || reported::hold(report?, target);
        let hold = holds.remove(&view.name).or_else(reported);
        Some(Member { node, view, report, hold })
    }
}

fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

fn pool_progress(
    pool: &MachineConfigPool,
    counts: RolloutCounts,
    nodes: &[NodeProgress],
) -> PoolProgress {
    let count = |phase: Phase| nodes.iter().filter(|node| node.phase == phase).count();
    PoolProgress {
        name: pool.metadata.name.clone().unwrap_or_default(),
        target: pool.spec.configuration.rendered.name.clone(),
        paused: pool.spec.paused,
        machines: nodes.len(),
        done: count(Phase::Done),
        ready: counts.ready,
        degraded: count(Phase::Degraded),
        updating: nodes.iter().filter(|node| node.is_updating()).count(),
        left: None,
        faults: explain::pool(pool).iter().map(ToString::to_string).collect(),
    }
}

/// Returns the progress of the nodes of one pool.
fn nodes(pool: &MachineConfigPool, members: &[Member<'_>]) -> Vec<NodeProgress> {
    let mut nodes: Vec<NodeProgress> =
        members.iter().map(|member| node_progress(pool, member)).collect();
    // The reason to wait for a slot is the progress of the nodes that occupy the slots.
    let limit = PoolView::of(pool, members.len()).map(|view| view.max_unavailable).ok();
    let waiting = limit.map(|limit| slot::wait(limit, members, &nodes));
    for (node, member) in nodes.iter_mut().zip(members) {
        let is_queued = node.phase == Phase::Waiting && member.hold == Some(Hold::NoCapacity);
        if let Some(wait) = waiting.as_ref().filter(|_| is_queued) {
            node.waits_for = Some(wait.cause.clone());
            node.next = Some(wait.next.clone());
            node.stuck = wait.stuck;
        }
    }
    nodes
}

impl NodeProgress {
    /// Returns true between the start and the end of an update.
    #[must_use]
    pub fn is_updating(&self) -> bool {
        match self.phase {
            Phase::Starting
            | Phase::Draining
            | Phase::Applying
            | Phase::Rebooting
            | Phase::Uncordoning => true,
            Phase::Done | Phase::Waiting | Phase::Degraded | Phase::Unknown => false,
        }
    }
}

fn node_progress(pool: &MachineConfigPool, member: &Member<'_>) -> NodeProgress {
    let Member { view, .. } = member;
    let target = &pool.spec.configuration.rendered.name;
    let phase = phase::phase(target, member);
    let mut progress = NodeProgress {
        name: view.name.clone(),
        pool: pool.metadata.name.clone(),
        phase,
        since: phase::since(pool, phase, member),
        current: view.current.clone(),
        target: if member.view.is_updating() { view.desired.clone() } else { target.clone() },
        waits_for: None,
        next: None,
        stuck: false,
    };
    let pool = pool.metadata.name.as_deref().unwrap_or_default();
    sentence::fill(&mut progress, pool, member);
    progress
}

fn without_pool(index: &NodeIndex, node: &Node) -> NodeProgress {
    let view = NodeView::of(node);
    let (waits_for, next) = match index.pool_of(&view.name) {
        Err(error) => {
            (error.to_string(), "remove the labels of all custom pools but one".to_owned())
        }
        Ok(_) => ("no pool selects the node".to_owned(), explain::JOIN_POOL.to_owned()),
    };
    NodeProgress {
        name: view.name,
        pool: None,
        phase: Phase::Unknown,
        since: None,
        current: view.current,
        target: String::new(),
        waits_for: Some(waits_for),
        next: Some(next),
        stuck: true,
    }
}

/// Returns the record of the drain that the daemon requests now.
fn drain_record(node: &Node) -> Option<DrainRecord> {
    let annotations = node.metadata.annotations.clone().unwrap_or_default();
    let record = annotation::DRAIN_RECORD.get(&annotations).ok().flatten()?;
    let requested = annotations.get(annotation::DESIRED_DRAIN.name());
    (requested == Some(&record.request)).then_some(record)
}
