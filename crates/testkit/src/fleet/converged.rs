//! Waits until the controller has written all MachineConfigNodes.

use std::{collections::BTreeMap, pin::pin};

use anyhow::Context as _;
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    ResourceExt as _,
    api::ListParams,
    runtime::{WatchStreamExt as _, watcher},
};
use mco_cluster::Clock;
use mco_core::machine_config_node;

use super::{Api, Client, MachineConfigNode, Node, TIMEOUT};

/// Waits until every MachineConfigNode matches its node. The nodes must not change any more.
pub(super) async fn wait(client: &Client) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let mut left: BTreeMap<String, Node> =
        nodes.into_iter().map(|node| (node.name_any(), node)).collect();
    let reports = Api::<MachineConfigNode>::all(client.clone());
    let reports = watcher(reports, watcher::Config::default()).default_backoff();
    let mut reports = pin!(reports.applied_objects());
    let waiting = async {
        while !left.is_empty() {
            // The watcher resumes by itself.
            let Ok(report) = reports.next().await.context("the watch has ended")? else { continue };
            if left.get(&report.name_any()).is_some_and(|node| is_current(node, &report)) {
                left.remove(&report.name_any());
            }
        }
        anyhow::Ok(())
    };
    let done = tokio::time::timeout(TIMEOUT, waiting).await;
    done.with_context(|| format!("timed out with {} outdated MachineConfigNodes", left.len()))?
}

fn is_current(node: &Node, report: &MachineConfigNode) -> bool {
    let conditions = report.status.clone().unwrap_or_default().conditions;
    let now = Time(Clock::System.now());
    report.spec == machine_config_node::spec(node, Some("worker"))
        && machine_config_node::conditions(&conditions, node, None, &now) == conditions
}
