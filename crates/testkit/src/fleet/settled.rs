//! When the controller has nothing more to say of any node.

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
use mco_core::progress;

use super::{Api, Client, MachineConfigNode, Node, PATIENCE};

/// Waits until every MachineConfigNode says what follows from its node, none of which waits or changes
/// any more.
pub(super) async fn all_told(client: &Client) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    let mut left: BTreeMap<String, Node> =
        nodes.into_iter().map(|node| (node.name_any(), node)).collect();
    let reports = Api::<MachineConfigNode>::all(client.clone());
    let reports = watcher(reports, watcher::Config::default()).default_backoff();
    let mut reports = pin!(reports.applied_objects());
    let telling = async {
        while !left.is_empty() {
            // The watch is taken up again by itself.
            let Ok(report) = reports.next().await.context("the watch has ended")? else { continue };
            if left.get(&report.name_any()).is_some_and(|node| is_told(node, &report)) {
                left.remove(&report.name_any());
            }
        }
        anyhow::Ok(())
    };
    let told = tokio::time::timeout(PATIENCE, telling).await;
    told.with_context(|| format!("{} nodes are not told of", left.len()))?
}

fn is_told(node: &Node, report: &MachineConfigNode) -> bool {
    let said = report.status.clone().unwrap_or_default().conditions;
    let now = Time(Clock::System.now());
    report.spec == progress::spec(node, Some("worker"))
        && progress::conditions(&said, node, None, &now) == said
}
