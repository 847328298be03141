//! Waits for the permission to change a cluster, without changing anything.
//!
//! The caller decides on what was observed; see `mco_core::takeover`. A refusal is logged once and
//! shown by `/readyz`, and decided anew when the ControllerConfig changes.

use std::{fmt::Display, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, core::PartialObjectMeta};
use mco_api::{ControllerConfig, MachineConfig, label};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::{Api, CallError, Health, Object, Shutdown, error::Rejection, report::chain, watch};

/// Pause after a failure to observe the cluster.
const RETRY: Duration = Duration::from_secs(2);

/// Time after which the cluster is observed again although the ControllerConfig has not changed: base
/// configs are not watched.
const RECHECK: Duration = Duration::from_mins(1);

/// The observed parts of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Metadata of the ControllerConfig.
    pub controller_config: Option<ObjectMeta>,
    /// Metadata of the base configs that exist, if they matter.
    pub base_configs: Vec<ObjectMeta>,
}

/// Observes a cluster; `suffices` tells that the base configs do not matter.
pub async fn observe(
    client: &Client,
    base_configs: &[&str],
    suffices: impl Fn(Option<&ObjectMeta>) -> bool,
) -> Result<Observed, CallError> {
    let api = Api::<PartialObjectMeta<ControllerConfig>>::all(client.clone());
    let controller_config = find(&api, label::CONTROLLER_CONFIG).await?;
    let mut observed = Observed { controller_config, base_configs: Vec::new() };
    if suffices(observed.controller_config.as_ref()) {
        return Ok(observed);
    }
    let api = Api::<PartialObjectMeta<MachineConfig>>::all(client.clone());
    for name in base_configs {
        match find(&api, name).await {
            Ok(found) => observed.base_configs.extend(found),
            // Without the permission to read them the ControllerConfig alone decides.
            Err(error) if error.rejection() == Some(Rejection::Other(403)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(observed)
}

/// Returns the metadata of an object; `None` if it does not exist, or its kind is not served yet.
async fn find<K>(
    api: &Api<PartialObjectMeta<K>>,
    name: &str,
) -> Result<Option<ObjectMeta>, CallError>
where
    PartialObjectMeta<K>: Object,
{
    match api.get(name).await.map_err(CallError::from) {
        Ok(found) => Ok(Some(found.metadata)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Decides once more about a cluster, after the Lease was acquired. Returns `None`, and logs the reason,
/// if it must not be changed.
pub async fn decide_again<T, R: Display>(
    client: &Client,
    base_configs: &[&str],
    suffices: impl Fn(Option<&ObjectMeta>) -> bool,
    decide: impl Fn(&Observed) -> Result<T, R>,
) -> Option<T> {
    let observed = match observe(client, base_configs, suffices).await {
        Ok(observed) => observed,
        Err(error) => {
            warn!(error = chain(&error), "Failed to find out who runs the cluster");
            return None;
        }
    };
    match decide(&observed) {
        Ok(permit) => Some(permit),
        Err(refusal) => {
            warn!(%refusal, "Released the Lease");
            None
        }
    }
}

/// Waits until `decide` permits to change the cluster, and returns its result. Returns `None` if
/// shutdown is requested before.
pub async fn wait<T, R: Display>(
    client: &Client,
    base_configs: &[&str],
    suffices: impl Fn(Option<&ObjectMeta>) -> bool,
    decide: impl Fn(&Observed) -> Result<T, R>,
    health: &Health,
    shutdown: &Shutdown,
) -> Option<T> {
    let permitted = async {
        let mut said = String::new();
        loop {
            let observed = match observe(client, base_configs, &suffices).await {
                Ok(observed) => observed,
                Err(error) => {
                    warn!(error = chain(&error), "Failed to find out who runs the cluster");
                    sleep(RETRY).await;
                    continue;
                }
            };
            let reason = match decide(&observed) {
                Ok(permit) => {
                    health.set_idle(None);
                    return permit;
                }
                Err(refusal) => refusal.to_string(),
            };
            if said != reason {
                info!(reason, "Waiting, and changing nothing");
                health.set_idle(Some(reason.clone()));
                said = reason;
            }
            // Ends without a change too, to observe base configs again.
            drop(timeout(RECHECK, changed(client, &observed)).await);
        }
    };
    tokio::select! {
        () = shutdown.requested() => None,
        permit = permitted => Some(permit),
    }
}

/// Waits until the ControllerConfig is another than the observed one.
async fn changed(client: &Client, observed: &Observed) {
    let api = Api::<PartialObjectMeta<ControllerConfig>>::all(client.clone());
    let config = watch::Config::default().metadata_only();
    let mut states = watch::object(&api, label::CONTROLLER_CONFIG, config);
    let known = observed.controller_config.as_ref().map(|config| config.resource_version.clone());
    while let Some(state) = states.next().await {
        let Ok(state) = state else { continue };
        if state.object.map(|found| found.metadata.resource_version) != known {
            return;
        }
    }
}
