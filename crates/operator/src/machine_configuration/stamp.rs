//! Marks the boot images of the release as those of this build, once a control plane node runs its
//! config. Controllers of boot images wait for the mark.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use mco_api::{MachineConfig, MachineConfigPool, annotation};
use mco_cluster::{
    Api, Cache, CallError,
    apply::{self, Precondition},
    cache::trim as trimmed,
    client::namespace,
    report::chain,
};
use mco_core::machine_configuration::serves_config;
use serde_json::json;
use tracing::{info, warn};

use crate::Context;

/// ConfigMap with the boot images of the release.
pub(super) const CONFIG_MAP: &str = "coreos-bootimages";

/// Keys of the mark. Compat: the names are the reference's.
const HASH: &str = "MCOVersionHash";
const RELEASE: &str = "MCOReleaseImageVersion";

/// Keeps only the mark: the other members are large.
pub(super) fn trim(map: &mut ConfigMap) {
    trimmed::metadata(map);
    map.binary_data = None;
    if let Some(data) = &mut map.data {
        data.retain(|key, _| key == HASH || key == RELEASE);
    }
}

/// Writes the mark if it is due. A failure is logged only: the next reconcile tries again.
pub(super) async fn apply(context: &Context, maps: &Cache<ConfigMap>) {
    let Some(map) = maps.get(&format!("{}/{CONFIG_MAP}", namespace(&context.client))) else {
        return;
    };
    let wanted = BTreeMap::from([
        (HASH.to_owned(), context.config.build.hash.clone()),
        (RELEASE.to_owned(), context.config.release.clone()),
    ]);
    if map.data.as_ref() == Some(&wanted) {
        return;
    }
    match write(context, &wanted).await {
        Ok(Some(stored)) => {
            info!(hash = wanted.get(HASH), "Marked the boot images as those of this build");
            maps.learn(stored);
        }
        Ok(None) => {}
        Err(error) => warn!(error = chain(&error), "Failed to mark the boot images"),
    }
}

async fn write(
    context: &Context,
    wanted: &BTreeMap<String, String>,
) -> Result<Option<ConfigMap>, CallError> {
    let Some(pool) = context.pools.get("master") else { return Ok(None) };
    if !is_rendered_here(context, &pool).await? {
        return Ok(None);
    }
    let api = Api::<ConfigMap>::own(context.client.clone());
    let patch = json!({"data": wanted});
    Ok(Some(apply::merge(&api, CONFIG_MAP, patch, Precondition::Any).await?))
}

/// Returns true if a node runs the pool's config, and the controller of this build rendered it.
async fn is_rendered_here(
    context: &Context,
    pool: &Arc<MachineConfigPool>,
) -> Result<bool, CallError> {
    if !serves_config(pool) {
        return Ok(false);
    }
    let api = Api::<PartialObjectMeta<MachineConfig>>::all(context.client.clone());
    let found = api.get_opt(&pool.spec.configuration.rendered.name).await?;
    let annotations = found.and_then(|found| found.metadata.annotations).unwrap_or_default();
    let by = annotation::GENERATED_BY_CONTROLLER_VERSION.get(&annotations).ok().flatten();
    Ok(by.is_some_and(|by| by == context.config.build.hash))
}
