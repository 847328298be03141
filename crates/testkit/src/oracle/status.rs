//! A pool with its nodes, and the status the reference computes for it.

use k8s_openapi::api::core::v1::Node;
use mco_api::{ControllerConfig, MachineConfigNode, MachineConfigPool};
use mco_core::{
    rollout::NodeView,
    status::{self, Inputs, NodeReport},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{difference, parsed, put};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    pool: MachineConfigPool,
    nodes: Vec<Node>,
    #[serde(default)]
    machine_config_nodes: Vec<MachineConfigNode>,
    controller_config: Option<ControllerConfig>,
}

/// When the computation takes place; every recorded time is earlier.
const NOW: &str = "2026-06-01T00:00:00Z";

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let Input { pool, nodes, machine_config_nodes, controller_config } = parsed(input)?;
    let nodes: Vec<NodeView> = nodes.iter().map(NodeView::of).collect();
    let reports: Vec<NodeReport> = machine_config_nodes.iter().map(NodeReport::of).collect();
    let now = serde_json::from_value(json!(NOW)).map_err(|error| error.to_string())?;
    let status = status::pool(&Inputs {
        pool: &pool,
        nodes: &nodes,
        reports: &reports,
        controller_config: controller_config.as_ref(),
        now,
    });
    let mut found = serde_json::to_value(&status).map_err(|error| error.to_string())?;
    let conditions: Vec<Value> = status
        .conditions
        .iter()
        .map(|condition| {
            let since = serde_json::to_value(&condition.last_transition_time).unwrap_or_default();
            json!({
                "type": condition.kind, "status": condition.status, "reason": condition.reason,
                "message": condition.message, "transitioned": since == NOW,
            })
        })
        .collect();
    put(&mut found, "conditions", json!(conditions));
    put(&mut found, "osImageStream", json!(""));
    put(&mut found, "observedGeneration", json!(status.observed_generation));
    difference(expect, &found).map_or(Ok(()), Err)
}
