//! The outcome of a simulation.

use mco_api::MachineConfigPool;
use mco_core::rollout::{self, Cordon, NodeView};

use super::World;
use crate::{Invariant, PoolOutcome, Report, report};

pub(super) fn name(pool: &MachineConfigPool) -> String {
    pool.metadata.name.clone().unwrap_or_default()
}

pub(super) fn target(pool: &MachineConfigPool) -> String {
    pool.spec.configuration.rendered.name.clone()
}

impl World {
    /// Computes `maxUnavailable` of each pool as a number of nodes.
    pub(super) fn compute_limits(&mut self) {
        for pool in &self.setup.pools {
            let name = name(pool);
            let members = self.nodes.iter().filter(|node| node.pool.as_ref() == Some(&name));
            let limit = pool.spec.max_unavailable.as_ref();
            let allowed = rollout::max_unavailable(&name, limit, members.count()).unwrap_or(0);
            self.unavailable.entry(name).or_default().allowed = allowed;
        }
    }

    pub(super) fn finish(mut self) -> Report {
        let pools: Vec<PoolOutcome> =
            self.setup.pools.iter().map(|pool| self.pool_outcome(pool)).collect();
        if self.violation.is_none() && self.faults_ended {
            self.check_cordons();
        }
        if self.violation.is_none() && self.faults_ended && self.setup.requires_convergence {
            self.check_convergence(&pools);
        }
        let ended =
            if pools.iter().all(|pool| pool.left.is_empty()) { self.changed } else { self.now };
        Report {
            timeline: self.timeline,
            violation: self.violation,
            ended,
            reboots: self.reboots,
            steps: self.steps,
            pools,
        }
    }

    /// Checks that no node that is done keeps a cordon of the controller.
    fn check_cordons(&mut self) {
        let mut pairs = self.nodes.iter().zip(&self.hosts);
        let left = pairs.find(|(record, host)| {
            let is_left = host.cordoned_by_controller && super::is_cordoned(&record.object);
            is_left && NodeView::of(&record.object).is_done()
        });
        if let Some(name) = left.map(|(record, _)| record.name.clone()) {
            self.violate(Invariant::CordonReturned, &name);
        }
    }

    /// Checks that all nodes reached their target that could.
    fn check_convergence(&mut self, pools: &[PoolOutcome]) {
        let paused =
            |name: &str| self.setup.pools.iter().any(|p| p.spec.paused && self::name(p) == name);
        let stuck = pools.iter().filter(|pool| !paused(&pool.name)).find_map(|pool| {
            let cordoned_by_user = |node: &str| {
                let mut pairs = self.nodes.iter().zip(&self.hosts);
                pairs.any(|(record, host)| record.name == node && host.cordoned_by_user)
            };
            let (node, why) = pool.left.iter().find(|(node, _)| !cordoned_by_user(node))?;
            let rule = if self.reverted.contains(&pool.name) {
                Invariant::RevertRepairs
            } else {
                Invariant::Converges
            };
            Some((rule, format!("{node}: {why}")))
        });
        if let Some((rule, who)) = stuck {
            self.violate(rule, &who);
        }
    }

    fn pool_outcome(&self, pool: &MachineConfigPool) -> PoolOutcome {
        let (name, target) = (name(pool), target(pool));
        let members: Vec<NodeView> = self
            .nodes
            .iter()
            .filter(|node| node.pool.as_ref() == Some(&name))
            .map(|node| NodeView::of(&node.object))
            .collect();
        let is_complete = |node: &NodeView| {
            node.is_updated(&target) && node.is_ready() && node.cordon == Cordon::Open
        };
        let unavailable = self.unavailable.get(&name);
        let plan = self.controller.last_plan(&name);
        let why = |node: &NodeView| {
            if node.is_targeted(&target) {
                return self.state_of(node);
            }
            let hold = plan.iter().find(|(held, _)| *held == node.name);
            hold.map_or_else(|| self.state_of(node), |(_, hold)| report::waits(hold))
        };
        PoolOutcome {
            nodes: members.len(),
            updated: members.iter().filter(|node| is_complete(node)).count(),
            max_seen_unavailable: unavailable.map(|nodes| nodes.most).unwrap_or_default(),
            max_unavailable: unavailable.map(|nodes| nodes.allowed).unwrap_or_default(),
            left: members
                .iter()
                .filter(|node| !is_complete(node))
                .map(|node| (node.name.clone(), why(node)))
                .collect(),
            name,
            target,
        }
    }

    fn state_of(&self, node: &NodeView) -> String {
        if let Some(why) = self.pods.blocked(&node.name) {
            return format!("drain blocked: {why}");
        }
        if !node.reason.is_empty() {
            return node.reason.clone();
        }
        match (&node.readiness, &node.state) {
            (rollout::Readiness::Not(why), _) => why.clone(),
            (rollout::Readiness::Ready, Some(state)) => format!("daemon is {state}"),
            (rollout::Readiness::Ready, None) => "daemon has not reported".to_owned(),
        }
    }
}
