//! Pools whose nodes run images that are built in the cluster.
//!
//! We build none. A pool with a MachineOSConfig is counted and left as it is, because a node that is
//! told to run a plain config leaves image mode. Only what would keep a builder from starting is
//! cleared away.

use kube::{Api, ResourceExt as _};
use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_cluster::{
    CallError,
    apply::{self, Changes},
};
use tracing::info;

use crate::{Context, error::ActError};

/// Names the build that a MachineOSConfig goes by.
const CURRENT_BUILD: &str = "machineconfiguration.openshift.io/current-machine-os-build";

/// Takes the name of a build off the pool's MachineOSConfig that is gone or of another config.
pub(crate) async fn forget_stale(
    context: &Context,
    pool: &MachineConfigPool,
) -> Result<(), ActError> {
    let Some(order) = context.caches.order_of(&pool.name_any()) else { return Ok(()) };
    let Some(build) = order.annotations().get(CURRENT_BUILD) else { return Ok(()) };
    let name = order.name_any();
    let builds = Api::<MachineOSBuild>::all(context.client.clone());
    let found = builds.get_opt(build).await.map_err(|source| {
        let source = CallError::from(source);
        ActError::ReadBuild { name: name.clone(), source }
    })?;
    let target = &pool.spec.configuration.rendered.name;
    if found.is_some_and(|found| found.spec.machine_config.name == *target) {
        return Ok(());
    }
    let changes = Changes::from([(CURRENT_BUILD.to_owned(), None)]);
    let orders = Api::<MachineOSConfig>::all(context.client.clone());
    let patched = apply::patch_annotations(&orders, &name, &changes).await;
    let patched = patched.map_err(|source| ActError::ForgetBuild { name: name.clone(), source })?;
    context.caches.orders.learn(patched);
    info!(pool = pool.name_any(), build, "MachineOSConfig named a build that is not its pool's");
    Ok(())
}
