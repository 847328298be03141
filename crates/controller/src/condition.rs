//! Writes one condition of a pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use mco_api::{MachineConfigPool, condition::PoolCondition};
use mco_cluster::Api;
use mco_cluster::apply::{self, Precondition};
use mco_core::status::{self, Finding};
use serde_json::json;

use crate::{Context, error::ActError};

/// Sets the condition `kind` of the pool, unless the pool has it already.
pub(crate) async fn set(
    context: &Context,
    pool: &str,
    kind: &PoolCondition,
    found: Finding,
) -> Result<(), ActError> {
    let Some(known) = context.caches.pools.get(pool) else { return Ok(()) };
    let before = known.status.clone().unwrap_or_default().conditions;
    let mut conditions = before.clone();
    status::set(&mut conditions, kind, found, &Time(context.clock.now()));
    if conditions == before {
        return Ok(());
    }
    // The list is written as a whole, and other controllers write other conditions in it.
    let version = known.resource_version().unwrap_or_default();
    let pools = Api::<MachineConfigPool>::all(context.client.clone());
    let patch = json!({"conditions": conditions});
    let patched = apply::merge_status(&pools, pool, patch, Precondition::Unchanged(&version)).await;
    let patched =
        patched.map_err(|source| ActError::PoolStatus { pool: pool.to_owned(), source })?;
    context.caches.pools.learn(patched);
    Ok(())
}
