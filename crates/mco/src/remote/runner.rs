//! The operator that runs a cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use mco_cluster::{CallError, permission};
use mco_core::takeover::{self, BASE_CONFIGS, Evidence, Facts, Runner};

use crate::process;

/// Returns the sign of another operator that runs the cluster; `None` if no other one does.
pub(crate) async fn other(client: &Client) -> Result<Option<Evidence>, CallError> {
    let own = process::build();
    let suffices = |found: Option<&ObjectMeta>| takeover::is_marked(found, &own);
    let observed = permission::observe(client, &BASE_CONFIGS, suffices).await?;
    let facts = Facts {
        controller_config: observed.controller_config.as_ref(),
        base_configs: &observed.base_configs,
    };
    Ok(match takeover::runner(facts, &own) {
        Runner::Ours => None,
        Runner::Another(evidence) => Some(evidence),
    })
}
