//! Finds out if the daemon may change its machine.
//!
//! On a cluster that another operator runs, that operator's daemon changes the machine.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use mco_cluster::{
    Health, Shutdown,
    permission::{self, Observed},
};
use mco_core::{
    render::Build,
    takeover::{self, BASE_CONFIGS, Facts, Order, Tenure},
};

/// Waits until the daemon may change its machine. Returns `None` if shutdown is requested before.
pub async fn wait(
    build: &Build,
    order: &Order,
    client: &Client,
    health: &Health,
    shutdown: &Shutdown,
) -> Option<Tenure> {
    let suffices = |found: Option<&ObjectMeta>| takeover::is_marked(found, build);
    let admit = |observed: &Observed| {
        let facts = Facts {
            controller_config: observed.controller_config.as_ref(),
            base_configs: &observed.base_configs,
        };
        takeover::tenure(facts, build, order)
    };
    permission::wait(client, &BASE_CONFIGS, suffices, admit, health, shutdown).await
}
