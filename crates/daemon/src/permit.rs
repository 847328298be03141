//! Finds out if the daemon may change its machine.
//!
//! On a cluster that another operator runs, that operator's daemon changes the machine. A daemon that may
//! not only watches, and rolls back what it did before, if that failed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mco_cluster::{
    Shutdown,
    permission::{self, Observed},
};
use mco_core::takeover::{self, BASE_CONFIGS, Facts};

use crate::DaemonContext;

/// Waits until the daemon may change its machine. Returns false if shutdown is requested before.
pub(crate) async fn wait(around: &DaemonContext, shutdown: &Shutdown) -> bool {
    let Some((build, order)) = &around.order else { return true };
    let suffices = |found: Option<&ObjectMeta>| takeover::is_marked(found, build);
    let admit = |observed: &Observed| {
        let facts = Facts {
            controller_config: observed.controller_config.as_ref(),
            base_configs: &observed.base_configs,
        };
        takeover::tenure(facts, build, order)
    };
    let (own, health) = (&around.clients.own, &around.health);
    permission::wait(own, &BASE_CONFIGS, suffices, admit, health, shutdown).await.is_some()
}
