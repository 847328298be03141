//! The counts behind a pool's status, from a scan of all nodes or updated node by node.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{DaemonReport, Images, MachineConfigNodeView, Updated, image_mode::Target};
use crate::rollout::NodeView;

/// The source of the updated and degraded counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountSource {
    /// Annotations of the nodes.
    #[default]
    Annotations,
    /// `MachineConfigNodes`, with the feature gate `ImageModeStatusReporting`.
    MachineConfigNodes,
}

/// The number of nodes in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All nodes.
    pub machines: usize,
    /// Nodes that run the pool's config, by their annotations.
    pub updated: usize,
    /// Updated nodes that are ready.
    pub ready: usize,
    /// Unavailable nodes.
    pub unavailable: usize,
    /// Nodes whose daemon is degraded, by their annotations.
    pub degraded: usize,
    /// Updated nodes, by their `MachineConfigNodes`.
    pub report_updated: usize,
    /// Degraded nodes, by their `MachineConfigNodes`.
    pub report_degraded: usize,
    /// Nodes with all pinned images pulled.
    pub pulled: usize,
    /// Nodes that keep a built OS image, because no process builds images for their pool.
    pub kept: usize,
}

impl Counts {
    /// Combines each pair of counts with `with`.
    fn each(&mut self, other: &Self, with: impl Fn(usize, usize) -> usize) {
        let pairs = [
            (&mut self.machines, other.machines),
            (&mut self.updated, other.updated),
            (&mut self.ready, other.ready),
            (&mut self.unavailable, other.unavailable),
            (&mut self.degraded, other.degraded),
            (&mut self.report_updated, other.report_updated),
            (&mut self.report_degraded, other.report_degraded),
            (&mut self.pulled, other.pulled),
            (&mut self.kept, other.kept),
        ];
        for (this, other) in pairs {
            *this = with(*this, other);
        }
    }

    fn add(&mut self, other: &Self) {
        self.each(other, usize::saturating_add);
    }

    /// Invariant: only counts that were added are removed, so none drops below zero.
    fn remove(&mut self, other: &Self) {
        self.each(other, usize::saturating_sub);
    }
}

/// The contribution of one node to its pool's status.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeContribution {
    counts: Counts,
    degraded: Option<DegradedNode>,
}

/// A degraded node with its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DegradedNode {
    pub(super) node: String,
    /// Message in its MachineConfigNode.
    pub(super) reported: Option<String>,
    /// Message in its annotation; may be empty.
    pub(super) reason: String,
    /// True if its MachineConfigNode has Updated before `NodeDegraded`.
    pub(super) is_updated: bool,
}

impl DegradedNode {
    /// Returns true if `text` contains the message of the annotation.
    pub(super) fn is_repeated_in(&self, text: &str) -> bool {
        !self.reason.is_empty() && text.contains(&self.reason)
    }
}

/// The contents of a pool's status.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolSummary {
    pub(super) counts: Counts,
    pub(super) degraded_nodes: Vec<DegradedNode>,
}

impl NodeContribution {
    fn of(target: &Target, node: &NodeView, report: Option<&MachineConfigNodeView>) -> Self {
        // Without conditions of the daemon the annotations count.
        let report = report.filter(|report| report.daemon_report == DaemonReport::Present);
        let reported = report.and_then(|report| report.degraded.clone());
        let says = |report: &MachineConfigNodeView| {
            report.updated != Updated::No && target.is_reported(report)
        };
        let first = report.is_some_and(|report| report.updated == Updated::First && says(report));
        let is_degraded = if report.is_some() { reported.is_some() } else { node.is_degraded() };
        let updated = target.is_reached(node);
        let counts = Counts {
            machines: 1,
            updated: usize::from(updated),
            ready: usize::from(updated && node.is_ready()),
            unavailable: usize::from(node.is_unavailable()),
            degraded: usize::from(node.is_degraded()),
            report_updated: usize::from(first || (reported.is_none() && report.is_some_and(says))),
            report_degraded: usize::from(reported.is_some() && !first),
            kept: usize::from(target.is_kept(node)),
            pulled: usize::from(report.is_some_and(|report| report.images == Images::Pulled)),
        };
        let degraded = is_degraded.then(|| DegradedNode {
            node: node.name.clone(),
            reported,
            reason: node.reason.clone(),
            is_updated: first,
        });
        Self { counts, degraded }
    }
}

impl PoolSummary {
    /// Scans every node.
    pub(super) fn of(
        target: &Target,
        nodes: &[NodeView],
        reports: &[MachineConfigNodeView],
    ) -> Self {
        let by_node: HashMap<&str, &MachineConfigNodeView> =
            reports.iter().map(|report| (report.node.as_str(), report)).collect();
        let mut summary = Self::default();
        for node in nodes {
            let report = by_node.get(node.name.as_str()).copied();
            let contribution = NodeContribution::of(target, node, report);
            summary.counts.add(&contribution.counts);
            summary.degraded_nodes.extend(contribution.degraded);
        }
        summary
    }
}

/// The counts of one pool, updated as its nodes change.
///
/// A node event costs the same for any number of nodes. A new target needs a new counter.
#[derive(Clone, Debug)]
pub struct StatusCounter {
    target: Target,
    nodes: BTreeMap<String, NodeContribution>,
    /// Names of the degraded nodes.
    degraded: BTreeSet<String>,
    counts: Counts,
}

impl StatusCounter {
    /// Creates a counter without nodes for the target of `pool`.
    #[must_use]
    pub fn new(pool: &mco_api::MachineConfigPool, build: &super::ImageBuild<'_>) -> Self {
        Self {
            target: build.target(pool),
            nodes: BTreeMap::new(),
            degraded: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Returns true if the counter was made for the pool's target.
    #[must_use]
    pub(crate) fn is_toward(
        &self,
        pool: &mco_api::MachineConfigPool,
        build: &super::ImageBuild<'_>,
    ) -> bool {
        self.target == build.target(pool)
    }

    /// Adds or updates a node.
    pub fn put(&mut self, node: &NodeView, report: Option<&MachineConfigNodeView>) {
        let contribution = NodeContribution::of(&self.target, node, report);
        self.remove(&node.name);
        self.counts.add(&contribution.counts);
        if contribution.degraded.is_some() {
            self.degraded.insert(node.name.clone());
        }
        self.nodes.insert(node.name.clone(), contribution);
    }

    /// Removes a node; unknown nodes are ignored.
    pub fn remove(&mut self, node: &str) {
        if let Some(contribution) = self.nodes.remove(node) {
            self.counts.remove(&contribution.counts);
            self.degraded.remove(node);
        }
    }

    /// Returns the number of nodes in each state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the counts with the messages of the degraded nodes, by name.
    pub(super) fn summary(&self) -> PoolSummary {
        let nodes = self.degraded.iter().filter_map(|node| self.nodes.get(node));
        let degraded_nodes =
            nodes.filter_map(|contribution| contribution.degraded.clone()).collect();
        PoolSummary { counts: self.counts, degraded_nodes }
    }
}
