//! Failure zones of the simulated machines, as labels that a cloud provider sets.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt as _};
use mco_cluster::{
    Api, Cache, Shutdown,
    apply::{self, Precondition},
    report,
};
use serde_json::json;
use tokio::sync::Notify;
use tracing::warn;

use super::fleet::{self, Role};

const LABEL: &str = "topology.kubernetes.io/zone";

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Labels every machine with its zone until shutdown.
pub(super) async fn run(client: Client, nodes: Arc<Cache<Node>>, zones: u16, shutdown: Shutdown) {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    nodes.on_change(move |_| notify.notify_one());
    let api = Api::<Node>::all(client);
    loop {
        let mut is_complete = true;
        for node in nodes.list() {
            let name = node.name_any();
            let Some(zone) = zone(&name, zones) else { continue };
            if node.labels().get(LABEL) == Some(&zone) {
                continue;
            }
            let patch = json!({"metadata": {"labels": {(LABEL): zone}}});
            if let Err(error) = apply::merge(&api, &name, patch, Precondition::Any).await {
                warn!(node = name, error = report::chain(&error), "Failed to set the zone");
                is_complete = false;
            }
        }
        tokio::select! {
            () = shutdown.requested() => return,
            () = changed.notified() => {}
            () = tokio::time::sleep(RETRY), if !is_complete => {}
        }
    }
}

/// Returns the zone of a machine: the machines of each role are spread evenly.
fn zone(name: &str, zones: u16) -> Option<String> {
    let number = [Role::Master, Role::Worker].iter().find_map(|role| fleet::number(*role, name))?;
    Some(format!("zone-{}", number.checked_rem(zones)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_a_role_are_spread_evenly() {
        let zones = ["worker-0", "worker-1", "worker-2", "worker-3", "master-1", "other"];
        let zones = zones.map(|name| zone(name, 3).unwrap_or_default());
        assert_eq!(zones, ["zone-0", "zone-1", "zone-2", "zone-0", "zone-1", ""]);
        assert_eq!(zone("worker-0", 0), None);
    }
}
