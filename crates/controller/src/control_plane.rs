//! The pools of the control plane and its topology.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mco_api::{ControllerConfig, MachineConfigPool, annotation::Topology};

use crate::caches::Caches;

/// Name of the control plane's pool.
pub(crate) const MASTER: &str = "master";

/// Names of the pools whose nodes form one etcd quorum where the control plane has an arbiter.
pub(crate) const CONTROL_PLANE: [&str; 2] = [MASTER, "arbiter"];

/// The turn of the pools of the control plane.
///
/// Their nodes form one quorum, so one pool chooses nodes only when the choice of the other is in the
/// node index. The turn is taken while a choice is written. The other pool does not wait for it: it
/// starts no node and tries again later, so that a request without an answer holds up neither its
/// status nor a worker.
#[derive(Debug, Default)]
pub(crate) struct Turn(Mutex<Option<String>>);

/// A turn that is taken until it is dropped.
#[derive(Debug)]
pub(crate) struct TurnGuard<'a>(&'a Turn);

/// The turn belongs to the other pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotOurTurn;

impl Turn {
    /// Calls `choose` and takes the turn if it chose nodes. Pools outside the control plane need no
    /// turn.
    pub(crate) fn choose<T>(
        &self,
        pool: &str,
        choose: impl FnOnce() -> T,
        has_nodes: impl FnOnce(&T) -> bool,
    ) -> Result<(T, Option<TurnGuard<'_>>), NotOurTurn> {
        if !CONTROL_PLANE.contains(&pool) {
            return Ok((choose(), None));
        }
        // Held while the nodes are chosen, which does not wait for anything.
        let mut owner = self.owner();
        if owner.is_some() {
            return Err(NotOurTurn);
        }
        let chosen = choose();
        if !has_nodes(&chosen) {
            return Ok((chosen, None));
        }
        *owner = Some(pool.to_owned());
        drop(owner);
        Ok((chosen, Some(TurnGuard(self))))
    }

    fn owner(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        *self.0.owner() = None;
    }
}

/// Returns the topology of the control plane.
pub(crate) fn topology(config: &ControllerConfig) -> Option<Topology> {
    config.spec.infra.as_ref()?.status.as_ref()?.control_plane_topology.clone()
}

/// Returns the other pool of a control plane with an arbiter; `None` for any other pool or
/// topology.
pub(crate) fn other_pool(caches: &Caches, pool: &str) -> Option<Arc<MachineConfigPool>> {
    let other = CONTROL_PLANE.into_iter().find(|other| *other != pool)?;
    let config = caches.controller_config()?;
    let is_control_plane = CONTROL_PLANE.contains(&pool);
    if !is_control_plane || topology(&config) != Some(Topology::HighlyAvailableArbiter) {
        return None;
    }
    caches.pools.get(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_waits_for_an_answer_keeps_the_other_from_starting_nodes_and_from_nothing_else() {
        let turn = Turn::default();
        let starts = |count: &usize| *count > 0;
        let (_, idle) = turn.choose("master", || 0, starts).unwrap();
        assert!(idle.is_none(), "a choice of no node takes no turn");
        let (_, writing) = turn.choose("master", || 1, starts).unwrap();
        let refused = turn.choose("arbiter", || -> usize { panic!("must not choose") }, starts);
        assert_eq!(refused.map(|_| ()), Err(NotOurTurn));
        assert!(turn.choose("worker", || 1, starts).is_ok(), "workers need no turn");
        drop(writing);
        assert!(turn.choose("arbiter", || 1, starts).is_ok());
    }
}
