//! Pools whose nodes run images that are built in the cluster.
//!
//! The controller builds no images. For a pool with a MachineOSConfig, the controller computes the
//! status, reports the state of the build, and starts no updates, because a node that gets a plain
//! config as its desired config leaves image mode. The controller only removes a stale annotation
//! that would keep a builder from starting.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt as _;
use mco_api::{MachineConfigPool, MachineOSBuild, MachineOSConfig};
use mco_cluster::{
    Api, CallError,
    apply::{self, Changes},
};
use tracing::info;

use crate::{Context, error::ActError};

/// Annotation that names the current build of a MachineOSConfig.
const CURRENT_BUILD: &str = "machineconfiguration.openshift.io/current-machine-os-build";

/// Removes the current-build annotation from the pool's MachineOSConfig if the build is gone or is
/// of another config.
pub(crate) async fn clear_stale_build(
    context: &Context,
    pool: &MachineConfigPool,
) -> Result<(), ActError> {
    let Some(config) = context.caches.machine_os_config_of(&pool.name_any()) else { return Ok(()) };
    let Some(build) = config.annotations().get(CURRENT_BUILD) else { return Ok(()) };
    let name = config.name_any();
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
    let configs = Api::<MachineOSConfig>::all(context.client.clone());
    let patched = apply::patch_annotations(&configs, &name, &changes).await;
    let patched = patched.map_err(|source| ActError::ClearBuild { name: name.clone(), source })?;
    context.caches.machine_os_configs.learn(patched);
    info!(pool = pool.name_any(), build, "Cleared stale build of MachineOSConfig");
    Ok(())
}

/// Returns the build of the pool's config, if there is one: the one that the MachineOSConfig names,
/// or any other.
pub(crate) fn current_build(
    context: &Context,
    config: &MachineOSConfig,
    pool: &MachineConfigPool,
) -> Option<Arc<MachineOSBuild>> {
    let target = &pool.spec.configuration.rendered.name;
    let is_of_config = |build: &Arc<MachineOSBuild>| build.spec.machine_config.name == *target;
    let named = config.annotations().get(CURRENT_BUILD);
    let named =
        named.and_then(|name| context.caches.machine_os_builds.get(name)).filter(is_of_config);
    named.or_else(|| {
        let (builds, name) = (context.caches.machine_os_builds.list(), config.name_any());
        let is_of_os_config =
            |build: &Arc<MachineOSBuild>| build.spec.machine_os_config.name == name;
        builds.into_iter().find(|build| is_of_os_config(build) && is_of_config(build))
    })
}

/// Returns the OS images of the pool's rendered config and its sources, by config name.
pub(crate) fn os_images(context: &Context, pool: &MachineConfigPool) -> BTreeMap<String, String> {
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
