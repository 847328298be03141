//! The pools of the control plane and its topology.

use std::sync::Arc;

use mco_api::{ControllerConfig, MachineConfigPool, annotation::Topology};

use crate::caches::Caches;

/// Name of the control plane's pool.
pub(crate) const MASTER: &str = "master";

/// Names of the pools whose nodes form one etcd quorum where the control plane has an arbiter.
pub(crate) const CONTROL_PLANE: [&str; 2] = [MASTER, "arbiter"];

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
