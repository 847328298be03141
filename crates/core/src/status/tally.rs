//! The numbers behind a pool's status, for all nodes at once or kept up to date one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Images, NodeReport, Updated, Voice, image_mode::Target};
use crate::rollout::NodeView;

/// Who is asked which nodes are updated or degraded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// The annotations of the nodes.
    #[default]
    Annotations,
    /// The MachineConfigNode of each, with the gate `ImageModeStatusReporting`.
    Reports,
}

/// How many nodes are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub machines: usize,
    /// Those that run the pool's config and say so, by their annotations.
    pub updated: usize,
    /// Those of them that pods can be put on.
    pub ready: usize,
    /// Those that are out of service or may be at any moment.
    pub unavailable: usize,
    /// Those whose daemon failed, by their annotations.
    pub degraded: usize,
    /// Those that are updated by their own reports.
    pub report_updated: usize,
    /// Those that are degraded by their own reports.
    pub report_degraded: usize,
    /// Those whose pinned images are all there.
    pub pulled: usize,
}

impl Counts {
    /// Applies `with` to each number of both.
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
        ];
        for (mine, theirs) in pairs {
            *mine = with(*mine, theirs);
        }
    }

    fn add(&mut self, other: &Self) {
        self.each(other, usize::saturating_add);
    }

    /// Invariant: what is taken away was added, so that nothing falls below zero.
    fn remove(&mut self, other: &Self) {
        self.each(other, usize::saturating_sub);
    }
}

/// What one node adds to its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    counts: Counts,
    complaint: Option<Complaint>,
}

/// What a degraded node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    pub(super) node: String,
    /// In its MachineConfigNode.
    pub(super) reported: Option<String>,
    /// In its annotation; empty if nothing.
    pub(super) reason: String,
    /// Whether it said before that it is updated.
    pub(super) is_updated: bool,
}

/// What a pool's status is made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Digest {
    pub(super) counts: Counts,
    pub(super) complaints: Vec<Complaint>,
}

impl Standing {
    fn of(target: &Target, node: &NodeView, report: Option<&NodeReport>) -> Self {
        // A node that has not reported yet, or in whose cluster nobody does, has its annotations.
        let report = report.filter(|report| report.voice == Voice::Heard);
        let reported = report.and_then(|report| report.degraded.clone());
        let says =
            |report: &NodeReport| report.updated != Updated::No && target.is_reported(report);
        let first = report.is_some_and(|report| report.updated == Updated::First && says(report));
        let has_complaint = if report.is_some() { reported.is_some() } else { node.is_degraded() };
        let updated = target.is_reached(node);
        let counts = Counts {
            machines: 1,
            updated: usize::from(updated),
            ready: usize::from(updated && node.is_ready()),
            unavailable: usize::from(node.is_unavailable()),
            degraded: usize::from(node.is_degraded()),
            report_updated: usize::from(first || (reported.is_none() && report.is_some_and(says))),
            report_degraded: usize::from(reported.is_some() && !first),
            pulled: usize::from(report.is_some_and(|report| report.images == Images::Pulled)),
        };
        let complaint = has_complaint.then(|| Complaint {
            node: node.name.clone(),
            reported,
            reason: node.reason.clone(),
            is_updated: first,
        });
        Self { counts, complaint }
    }
}

impl Digest {
    /// Looks at every node.
    pub(super) fn of(target: &Target, nodes: &[NodeView], reports: &[NodeReport]) -> Self {
        let by_node: HashMap<&str, &NodeReport> =
            reports.iter().map(|report| (report.node.as_str(), report)).collect();
        let mut digest = Self::default();
        for node in nodes {
            let report = by_node.get(node.name.as_str()).copied();
            let standing = Standing::of(target, node, report);
            digest.counts.add(&standing.counts);
            digest.complaints.extend(standing.complaint);
        }
        digest
    }
}

/// The numbers of one pool, kept up to date as its nodes change.
///
/// A node's event costs the same however many nodes there are. A new target means a new tally.
#[derive(Clone, Debug)]
pub struct Tally {
    target: Target,
    nodes: BTreeMap<String, Standing>,
    /// The nodes that complain.
    complaining: BTreeSet<String>,
    counts: Counts,
}

impl Tally {
    /// An empty pool that is to run what `pool` says.
    #[must_use]
    pub fn new(pool: &mco_api::MachineConfigPool, build: &super::ImageBuild<'_>) -> Self {
        Self {
            target: build.target(pool),
            nodes: BTreeMap::new(),
            complaining: BTreeSet::new(),
            counts: Counts::default(),
        }
    }

    /// Whether this is what the pool is to run.
    #[must_use]
    pub fn is_toward(
        &self,
        pool: &mco_api::MachineConfigPool,
        build: &super::ImageBuild<'_>,
    ) -> bool {
        self.target == build.target(pool)
    }

    /// Takes a node in, or takes note of how it is now.
    pub fn put(&mut self, node: &NodeView, report: Option<&NodeReport>) {
        let standing = Standing::of(&self.target, node, report);
        self.remove(&node.name);
        self.counts.add(&standing.counts);
        if standing.complaint.is_some() {
            self.complaining.insert(node.name.clone());
        }
        self.nodes.insert(node.name.clone(), standing);
    }

    /// Lets a node go; one that is not there changes nothing.
    pub fn remove(&mut self, node: &str) {
        if let Some(standing) = self.nodes.remove(node) {
            self.counts.remove(&standing.counts);
            self.complaining.remove(node);
        }
    }

    /// How many nodes are in which state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The numbers, with what the degraded nodes say, in the order of their names.
    pub(super) fn digest(&self) -> Digest {
        let nodes = self.complaining.iter().filter_map(|node| self.nodes.get(node));
        let complaints = nodes.filter_map(|standing| standing.complaint.clone()).collect();
        Digest { counts: self.counts, complaints }
    }
}
