//! Pools whose nodes run images that are built in the cluster.
//!
//! We build none. A pool with a MachineOSConfig is counted, says how somebody else's build goes, and is
//! left as it is, because a node that is told to run a plain config leaves image mode. Only what would
//! keep a builder from starting is cleared away.

use std::{collections::BTreeMap, sync::Arc};

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

/// The build of the pool's config, if there is one: the one that the order names, or any other.
pub(crate) fn build(
    context: &Context,
    order: &MachineOSConfig,
    pool: &MachineConfigPool,
) -> Option<Arc<MachineOSBuild>> {
    let target = &pool.spec.configuration.rendered.name;
    let is_of_config = |build: &Arc<MachineOSBuild>| build.spec.machine_config.name == *target;
    let named = order.annotations().get(CURRENT_BUILD);
    let named = named.and_then(|name| context.caches.builds.get(name)).filter(is_of_config);
    named.or_else(|| {
        let (builds, name) = (context.caches.builds.list(), order.name_any());
        let is_of_order = |build: &Arc<MachineOSBuild>| build.spec.machine_os_config.name == name;
        builds.into_iter().find(|build| is_of_order(build) && is_of_config(build))
    })
}

/// The OS images that the pool's config and its sources name.
pub(crate) fn named(context: &Context, pool: &MachineConfigPool) -> BTreeMap<String, String> {
    let configuration = &pool.spec.configuration;
    let sources = configuration.source.iter().map(|source| &source.name);
    let names = [&configuration.rendered.name].into_iter().chain(sources);
    names
        .filter_map(|name| {
            let config = context.caches.configs.get(name)?;
            Some((name.clone(), config.spec.os_image_url.clone()))
        })
        .collect()
}
