//! The nodes of a pool, kept in order, so that a change of one node costs the same in a pool of ten
//! and in one of ten thousand.

use std::collections::BTreeMap;

use super::{
    Hold, NodeView, Phase, PoolView, RolloutPlan, Verdict,
    stand::{Need, Reach, Stand},
    view::Order,
};

/// The nodes of a pool, ready to be chosen from.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    target: String,
    members: BTreeMap<String, Member>,
    arrivals: u64,
    redirects: BTreeMap<Place, String>,
    rescues: BTreeMap<(Reach, Place), String>,
    starts: BTreeMap<Place, String>,
    claimed: BTreeMap<Place, String>,
    tally: Tally,
}

/// A node's place among the others: the order of updates, then the order in which they came.
type Place = (Order, u64);

#[derive(Clone, Debug)]
struct Member {
    node: NodeView,
    arrival: u64,
    stand: Stand,
}

/// How many nodes of a pool are in each state, as its status counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub machines: usize,
    /// Those that run the target.
    pub updated: usize,
    /// Those that run the target and can be used.
    pub ready: usize,
    /// Those out of service.
    pub unavailable: usize,
    /// Those whose daemon failed.
    pub degraded: usize,
    /// How many places of `maxUnavailable` are taken.
    pub places: usize,
    /// Those that were told something and are not through with it.
    pub moving: usize,
}

impl Tally {
    fn of(member: &Member, target: &str) -> Self {
        let Member { node, stand, .. } = member;
        Self {
            machines: 1,
            updated: node.is_updated(target).into(),
            ready: (node.is_updated(target) && node.is_ready()).into(),
            unavailable: node.is_unavailable().into(),
            degraded: node.is_degraded().into(),
            places: stand.places,
            moving: stand.moving.into(),
        }
    }

    fn zip(self, other: Self, with: fn(usize, usize) -> usize) -> Self {
        Self {
            machines: with(self.machines, other.machines),
            updated: with(self.updated, other.updated),
            ready: with(self.ready, other.ready),
            unavailable: with(self.unavailable, other.unavailable),
            degraded: with(self.degraded, other.degraded),
            places: with(self.places, other.places),
            moving: with(self.moving, other.moving),
        }
    }
}

impl Fleet {
    /// No nodes yet, of a pool with this target.
    #[must_use]
    pub fn toward(target: &str) -> Self {
        Self { target: target.to_owned(), ..Self::default() }
    }

    /// Takes in a node, new or changed.
    pub fn set(&mut self, node: NodeView) {
        let arrival = self.remove(&node.name).unwrap_or_else(|| {
            self.arrivals += 1;
            self.arrivals
        });
        let stand = Stand::of(&node, &self.target);
        let member = Member { node, arrival, stand };
        self.file(&member);
        self.tally = self.tally.zip(Tally::of(&member, &self.target), usize::saturating_add);
        self.members.insert(member.node.name.clone(), member);
    }

    /// Lets go of a node that is gone, or another pool's.
    pub fn forget(&mut self, node: &str) {
        self.remove(node);
    }

    fn remove(&mut self, node: &str) -> Option<u64> {
        let member = self.members.remove(node)?;
        let place = (member.node.update_order(), member.arrival);
        match member.stand.need {
            Need::Redirect => self.redirects.remove(&place),
            Need::Rescue(reach) => self.rescues.remove(&(reach, place)),
            Need::Slot => self.starts.remove(&place),
            Need::Labels => self.claimed.remove(&place),
            Need::Nothing | Need::Wait(_) => None,
        };
        self.tally = self.tally.zip(Tally::of(&member, &self.target), usize::saturating_sub);
        Some(member.arrival)
    }

    fn file(&mut self, member: &Member) {
        let place = (member.node.update_order(), member.arrival);
        let name = member.node.name.clone();
        match member.stand.need {
            Need::Redirect => self.redirects.insert(place, name),
            Need::Rescue(reach) => self.rescues.insert((reach, place), name),
            Need::Slot => self.starts.insert(place, name),
            Need::Labels => self.claimed.insert(place, name),
            Need::Nothing | Need::Wait(_) => None,
        };
    }

    /// Looks at every node anew because the pool has another target.
    pub fn retarget(&mut self, target: &str) {
        if self.target == target {
            return;
        }
        let members = std::mem::take(&mut self.members);
        *self = Self { target: target.to_owned(), arrivals: self.arrivals, ..Self::default() };
        for (name, mut member) in members {
            member.stand = Stand::of(&member.node, target);
            self.file(&member);
            self.tally = self.tally.zip(Tally::of(&member, target), usize::saturating_add);
            self.members.insert(name, member);
        }
    }

    /// How many nodes are in each state.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeView> {
        self.members.values().map(|member| &member.node)
    }

    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeView> {
        self.members.get(name).map(|member| &member.node)
    }

    /// Chooses the nodes to tell, first those that need no slot. Who waits is left out: see `holds`.
    ///
    /// The cost depends on how many nodes are told, not on how many there are.
    pub fn choose(&mut self, pool: &PoolView) -> RolloutPlan {
        self.retarget(&pool.target);
        let free = self.capacity(pool);
        let mut plan = RolloutPlan::toward(&pool.target, free);
        if pool.phase != Phase::Active {
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
        let taken = i64::try_from(self.tally.places).unwrap_or(i64::MAX);
        usize::try_from(pool.max_unavailable.saturating_sub(taken)).unwrap_or(0)
    }

    /// Tells the nodes that need no slot.
    fn repair(&self, pool: &PoolView, plan: &mut RolloutPlan) {
        plan.repairs.extend(self.redirects.values().cloned());
        let limit = usize::try_from(pool.max_unavailable).unwrap_or(0);
        let mut moving = self.tally.moving.saturating_add(pool.neighbour.moving);
        for name in self.rescues.values() {
            let counted = self.members.get(name).is_some_and(|member| member.stand.moving);
            let after = moving.saturating_add(usize::from(!counted));
            if after > limit {
                break;
            }
            moving = after;
            plan.repairs.push(name.clone());
        }
        plan.starts.clone_from(&plan.repairs);
    }

    /// Fills the free slots.
    fn start(&self, pool: &PoolView, plan: &mut RolloutPlan) {
        for name in self.claimed.values() {
            let claim = self.members.get(name).and_then(|member| member.node.claim.clone());
            plan.labels.push((name.clone(), claim.unwrap_or_default()));
        }
        // Compat: with one candidate left there is nobody to go before it
        // (pkg/controller/node/node_controller.go, filterControlPlaneCandidateNodes).
        let last = pool.operator_node.as_deref();
        let last = last.filter(|_| pool.name == "master" && self.in_line() > 1);
        for name in self.starts.values() {
            if plan.starts.len() - plan.repairs.len() == plan.capacity {
                break;
            }
            if last != Some(name) {
                plan.starts.push(name.clone());
            }
        }
        plan.deferred = last.filter(|name| self.waits_for_a_slot(name)).map(str::to_owned);
    }

    /// How many nodes still have to be told and can be.
    pub(super) fn in_line(&self) -> usize {
        self.starts.len() + self.redirects.len() + self.rescues.len()
    }

    fn waits_for_a_slot(&self, node: &str) -> bool {
        self.members.get(node).is_some_and(|member| member.stand.need == Need::Slot)
    }

    /// Why each node that needs the target and is not told now has to wait, in the order they came.
    #[must_use]
    pub fn holds(&self, pool: &PoolView, plan: &RolloutPlan) -> Vec<(String, Hold)> {
        let told: std::collections::BTreeSet<&str> = plan
            .starts
            .iter()
            .chain(plan.labels.iter().map(|(node, _)| node))
            .map(String::as_str)
            .collect();
        let mut waiting: Vec<&Member> = self
            .members
            .values()
            .filter(|member| member.stand.need != Need::Nothing)
            .filter(|member| !told.contains(member.node.name.as_str()))
            .collect();
        waiting.sort_by_key(|member| member.arrival);
        let verdict = Verdict::of(pool, plan);
        let hold = |member: &Member| Some((member.node.name.clone(), member.hold(&verdict)?));
        waiting.into_iter().filter_map(hold).collect()
    }

    /// Why a node has to wait by the last choice; `None` if it needs nothing.
    #[must_use]
    pub fn hold(&self, node: &str, verdict: &Verdict) -> Option<Hold> {
        self.members.get(node)?.hold(verdict)
    }

    /// Whether a node was told something and is not through with it.
    #[must_use]
    pub fn is_moving(&self, node: &str) -> bool {
        self.members.get(node).is_some_and(|member| member.stand.moving)
    }
}

impl Member {
    fn hold(&self, verdict: &Verdict) -> Option<Hold> {
        if self.stand.need == Need::Nothing {
            return None;
        }
        match verdict.phase {
            Phase::Paused => return Some(Hold::Paused),
            Phase::Deleting => return Some(Hold::Deleting),
            Phase::Active => {}
        }
        Some(match (&self.stand.need, &verdict.refusal) {
            (Need::Wait(hold), _) => hold.clone(),
            (_, Some(refusal)) => refusal.clone(),
            (_, None) if verdict.deferred.as_ref() == Some(&self.node.name) => Hold::OperatorNode,
            (_, None) if verdict.neighbour => Hold::Neighbour,
            (_, None) => Hold::NoCapacity,
        })
    }
}
