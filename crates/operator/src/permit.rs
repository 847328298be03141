//! Finds out if this process may change the cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use mco_cluster::{
    Shutdown,
    permission::{self, Observed},
};
use mco_core::takeover::{self, BASE_CONFIGS, Facts, Refusal, Tenure};

use crate::Config;

/// Waits until this process may change the cluster. Returns `None` if shutdown is requested before.
pub(crate) async fn wait(config: &Config, client: &Client, shutdown: &Shutdown) -> Option<Tenure> {
    let suffices = |found: Option<&ObjectMeta>| takeover::is_marked(found, &config.build);
    let admit = |observed: &Observed| admit(observed, config);
    permission::wait(client, &BASE_CONFIGS, suffices, admit, &config.health, shutdown).await
}

/// Decides if this process may change the cluster now.
pub(crate) async fn decide(config: &Config, client: &Client) -> Option<Tenure> {
    let suffices = |found: Option<&ObjectMeta>| takeover::is_marked(found, &config.build);
    let admit = |observed: &Observed| admit(observed, config);
    permission::decide_again(client, &BASE_CONFIGS, suffices, admit).await
}

/// Unlike the controller, the operator generates nothing that names a build on a cluster of another
/// operator, so it needs no adopted one.
fn admit(observed: &Observed, config: &Config) -> Result<Tenure, Refusal> {
    let facts = Facts {
        controller_config: observed.controller_config.as_ref(),
        base_configs: &observed.base_configs,
    };
    takeover::tenure(facts, &config.build, &config.order)
}
