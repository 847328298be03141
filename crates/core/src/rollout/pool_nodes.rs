//! The nodes of a pool, indexed by what they need, so that a change of one node costs the same in a
//! pool of ten and of ten thousand nodes.

use std::collections::BTreeMap;

use super::{
    BuiltImages, Hold, NodeView, PoolPhase, PoolView, RolloutDecision, RolloutPlan,
    assessment::{Assessment, Need, Responsiveness},
    view::Order,
};

/// The nodes of a pool, ready for selection.
#[derive(Clone, Debug, Default)]
pub struct PoolNodes {
    target: String,
    built_images: BuiltImages,
    members: BTreeMap<String, Member>,
    arrivals: u64,
    redirects: BTreeMap<Place, String>,
    rescues: BTreeMap<(Responsiveness, Place), String>,
    starts: BTreeMap<Place, String>,
    claimed: BTreeMap<Place, String>,
    counts: RolloutCounts,
}

/// The position of a node: order of updates, then order of arrival.
type Place = (Order, u64);

#[derive(Clone, Debug)]
struct Member {
    node: NodeView,
    arrival: u64,
    assessment: Assessment,
}

/// The number of nodes in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutCounts {
    /// All nodes.
    pub machines: usize,
    /// Nodes that run the target.
    pub updated: usize,
    /// Nodes that run the target and are ready.
    pub ready: usize,
    /// Unavailable nodes.
    pub unavailable: usize,
    /// Nodes whose daemon is degraded.
    pub degraded: usize,
    /// Occupied slots of `maxUnavailable`.
    pub slots: usize,
    /// Nodes that are updating.
    pub updating: usize,
}

impl RolloutCounts {
    fn of(member: &Member, target: &str) -> Self {
        let Member { node, assessment, .. } = member;
        Self {
            machines: 1,
            updated: node.is_updated(target).into(),
            ready: (node.is_updated(target) && node.is_ready()).into(),
            unavailable: node.is_unavailable().into(),
            degraded: node.is_degraded().into(),
            slots: assessment.slots,
            updating: assessment.updating.into(),
        }
    }

    fn zip(self, other: Self, with: fn(usize, usize) -> usize) -> Self {
        Self {
            machines: with(self.machines, other.machines),
            updated: with(self.updated, other.updated),
            ready: with(self.ready, other.ready),
            unavailable: with(self.unavailable, other.unavailable),
            degraded: with(self.degraded, other.degraded),
            slots: with(self.slots, other.slots),
            updating: with(self.updating, other.updating),
        }
    }
}

impl PoolNodes {
    /// Creates a pool without nodes that has this target.
    #[must_use]
    pub fn with_target(target: &str) -> Self {
        Self { target: target.to_owned(), ..Self::default() }
    }

    /// Adds or updates a node.
    pub fn set(&mut self, node: NodeView) {
        let arrival = self.take_out(&node.name).unwrap_or_else(|| {
            self.arrivals += 1;
            self.arrivals
        });
        let assessment = Assessment::of(&node, &self.target, self.built_images);
        let member = Member { node, arrival, assessment };
        self.file(&member);
        self.counts =
            self.counts.zip(RolloutCounts::of(&member, &self.target), usize::saturating_add);
        self.members.insert(member.node.name.clone(), member);
    }

    /// Removes a node that was deleted or belongs to another pool now.
    pub fn remove(&mut self, node: &str) {
        self.take_out(node);
    }

    /// Removes a node from all orders and returns its position of arrival.
    fn take_out(&mut self, node: &str) -> Option<u64> {
        let member = self.members.remove(node)?;
        let place = (member.node.update_order(), member.arrival);
        match member.assessment.need {
            Need::Redirect => self.redirects.remove(&place),
            Need::Rescue(responsiveness) => self.rescues.remove(&(responsiveness, place)),
            Need::Slot => self.starts.remove(&place),
            Need::Labels => self.claimed.remove(&place),
            Need::Nothing | Need::Wait(_) => None,
        };
        self.counts =
            self.counts.zip(RolloutCounts::of(&member, &self.target), usize::saturating_sub);
        Some(member.arrival)
    }

    fn file(&mut self, member: &Member) {
        let place = (member.node.update_order(), member.arrival);
        let name = member.node.name.clone();
        match member.assessment.need {
            Need::Redirect => self.redirects.insert(place, name),
            Need::Rescue(responsiveness) => self.rescues.insert((responsiveness, place), name),
            Need::Slot => self.starts.insert(place, name),
            Need::Labels => self.claimed.insert(place, name),
            Need::Nothing | Need::Wait(_) => None,
        };
    }

    /// Assesses every node again if the pool has another target.
    pub(crate) fn retarget(&mut self, target: &str) {
        self.reassess(target, self.built_images);
    }

    fn reassess(&mut self, target: &str, built_images: BuiltImages) {
        if self.target == target && self.built_images == built_images {
            return;
        }
        let members = std::mem::take(&mut self.members);
        let (target_of_pool, arrivals) = (target.to_owned(), self.arrivals);
        *self = Self { target: target_of_pool, built_images, arrivals, ..Self::default() };
        for (name, mut member) in members {
            member.assessment = Assessment::of(&member.node, target, built_images);
            self.file(&member);
            self.counts =
                self.counts.zip(RolloutCounts::of(&member, target), usize::saturating_add);
            self.members.insert(name, member);
        }
    }

    /// Returns the number of nodes in each state.
    #[must_use]
    pub fn counts(&self) -> RolloutCounts {
        self.counts
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeView> {
        self.members.values().map(|member| &member.node)
    }

    /// Returns the node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeView> {
        self.members.get(name).map(|member| &member.node)
    }

    /// Selects the nodes to update, first those that need no slot. The waiting nodes are omitted:
    /// see `holds`.
    ///
    /// The cost depends on the number of selected nodes, not on the size of the pool.
    pub fn select(&mut self, pool: &PoolView) -> RolloutPlan {
        self.reassess(&pool.target, pool.built_images);
        let free = self.capacity(pool);
        let mut plan = RolloutPlan::toward(&pool.target, free);
        if pool.phase != PoolPhase::Active {
            return plan;
        }
        self.repair(pool, &mut plan);
        if free > 0 {
            self.start(pool, &mut plan);
        }
        plan
    }

    fn capacity(&self, pool: &PoolView) -> usize {
        if pool.neighbour.unavailable > 0 {
            return 0;
        }
        let taken = i64::try_from(self.counts.slots).unwrap_or(i64::MAX);
        usize::try_from(pool.max_unavailable.saturating_sub(taken)).unwrap_or(0)
    }

    /// Selects the nodes that need no slot.
    fn repair(&self, pool: &PoolView, plan: &mut RolloutPlan) {
        plan.repairs.extend(self.redirects.values().cloned());
        let limit = usize::try_from(pool.max_unavailable).unwrap_or(0);
        let mut updating = self.counts.updating.saturating_add(pool.neighbour.updating);
        for name in self.rescues.values() {
            let counted = self.members.get(name).is_some_and(|member| member.assessment.updating);
            let after = updating.saturating_add(usize::from(!counted));
            if after > limit {
                break;
            }
            updating = after;
            plan.repairs.push(name.clone());
        }
        plan.starts.clone_from(&plan.repairs);
    }

    /// Fills the free slots.
    fn start(&self, pool: &PoolView, plan: &mut RolloutPlan) {
        for name in self.claimed.values() {
            let claim = self.members.get(name).and_then(|member| member.node.pool_labels.clone());
            plan.labels.push((name.clone(), claim.unwrap_or_default()));
        }
        // Compat: the last candidate is not deferred (pkg/controller/node/node_controller.go,
        // filterControlPlaneCandidateNodes).
        let last = pool.operator_node.as_deref();
        let last = last.filter(|_| pool.name == "master" && self.pending() > 1);
        for name in self.starts.values() {
            if plan.starts.len() - plan.repairs.len() == plan.capacity {
                break;
            }
            if last != Some(name) {
                plan.starts.push(name.clone());
            }
        }
        plan.deferred = last.filter(|name| self.needs_slot(name)).map(str::to_owned);
    }

    /// Returns the number of nodes that can be selected and are not updated yet.
    pub(super) fn pending(&self) -> usize {
        self.starts.len() + self.redirects.len() + self.rescues.len()
    }

    fn needs_slot(&self, node: &str) -> bool {
        self.members.get(node).is_some_and(|member| member.assessment.need == Need::Slot)
    }

    /// Returns the reason to wait of each node that needs the target and is not selected, in order
    /// of arrival.
    #[must_use]
    pub fn holds(&self, pool: &PoolView, plan: &RolloutPlan) -> Vec<(String, Hold)> {
        let selected: std::collections::BTreeSet<&str> = plan
            .starts
            .iter()
            .chain(plan.labels.iter().map(|(node, _)| node))
            .map(String::as_str)
            .collect();
        let mut waiting: Vec<&Member> = self
            .members
            .values()
            .filter(|member| member.assessment.need != Need::Nothing)
            .filter(|member| !selected.contains(member.node.name.as_str()))
            .collect();
        waiting.sort_by_key(|member| member.arrival);
        let decision = RolloutDecision::of(pool, plan);
        let hold = |member: &Member| Some((member.node.name.clone(), member.hold(&decision)?));
        waiting.into_iter().filter_map(hold).collect()
    }

    /// Returns the reason why a node waits after the last selection; `None` if the node needs
    /// nothing.
    #[must_use]
    pub fn hold(&self, node: &str, decision: &RolloutDecision) -> Option<Hold> {
        self.members.get(node)?.hold(decision)
    }

    /// Returns true if a node is updating.
    #[must_use]
    pub fn is_updating(&self, node: &str) -> bool {
        self.members.get(node).is_some_and(|member| member.assessment.updating)
    }
}

impl Member {
    fn hold(&self, decision: &RolloutDecision) -> Option<Hold> {
        if self.assessment.need == Need::Nothing {
            return None;
        }
        match decision.phase {
            PoolPhase::Paused => return Some(Hold::Paused),
            PoolPhase::Deleting => return Some(Hold::Deleting),
            PoolPhase::Active => {}
        }
        Some(match (&self.assessment.need, &decision.refusal) {
            (Need::Wait(hold), _) => hold.clone(),
            (_, Some(refusal)) => refusal.clone(),
            (_, None) if decision.deferred.as_ref() == Some(&self.node.name) => Hold::OperatorNode,
            (_, None) if decision.neighbour => Hold::ControlPlane,
            (_, None) => Hold::NoCapacity,
        })
    }
}
