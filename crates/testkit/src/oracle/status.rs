//! Suite: a pool with its nodes, and the status the reference computes for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus,
    MachineOSBuild, MachineOSConfig, OSImageStream,
};
use mco_core::{
    rollout::NodeView,
    status::{
        self, Builder, CountSource, DaemonReport, ImageBuild, Inputs, MachineConfigNodeView,
        StatusContext, Streams,
    },
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
    machine_config_nodes: Vec<Value>,
    controller_config: Option<ControllerConfig>,
    #[serde(rename = "machineOSConfig")]
    machine_os_config: Option<MachineOSConfig>,
    #[serde(rename = "machineOSBuild")]
    machine_os_build: Option<MachineOSBuild>,
    #[serde(default)]
    machine_configs: Vec<MachineConfig>,
    os_image_stream: Option<OSImageStream>,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
}

/// Time of the computation. All recorded times are earlier.
const NOW: &str = "2026-06-01T00:00:00Z";

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let input: Input = parsed(input)?;
    let nodes: Vec<NodeView> = input.nodes.iter().map(NodeView::of).collect();
    let reports = considered(&input.machine_config_nodes, &nodes)?;
    let now = serde_json::from_value(json!(NOW)).map_err(|error| error.to_string())?;
    let status = status::pool(&Inputs {
        pool: &input.pool,
        nodes: &nodes,
        reports: &reports,
        context: around(&input),
        now,
    });
    let mut expected = expect.clone();
    let mut found = shown(&status)?;
    if is_unreported(&nodes, &reports) {
        // The reference counts such a node as degraded without a reason; `mco` gives the reason.
        for side in [&mut expected, &mut found] {
            without_words(side);
        }
    }
    difference(&expected, &found).map_or(Ok(()), Err)
}

fn around(input: &Input) -> StatusContext<'_> {
    let gate = |name: &str| input.feature_gates.get(name).copied().unwrap_or_default();
    let image = |config: &MachineConfig| {
        let name = config.metadata.name.clone().unwrap_or_default();
        (name, config.spec.os_image_url.clone())
    };
    StatusContext {
        controller_config: input.controller_config.as_ref(),
        image_build: ImageBuild {
            config: input.machine_os_config.as_ref(),
            build: input.machine_os_build.as_ref(),
            builder: Builder::Present,
        },
        streams: gate("OSStreams").then(|| Streams {
            offered: input.os_image_stream.as_ref(),
            images: input.machine_configs.iter().map(image).collect(),
        }),
        counting: if gate("ImageModeStatusReporting") {
            CountSource::MachineConfigNodes
        } else {
            CountSource::Annotations
        },
    }
}

/// Returns the MachineConfigNodes that the reference considers. It stops at the first one without
/// conditions or without a node of the pool; `mco` considers all, so the rest is left out here.
fn considered(raw: &[Value], nodes: &[NodeView]) -> Result<Vec<MachineConfigNodeView>, String> {
    let mut reports = Vec::new();
    for value in raw {
        let node: MachineConfigNode =
            serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        let mut report = MachineConfigNodeView::of(&node);
        // Only clusters with the feature gate have this member; the kind in `mco` is that of
        // clusters without the gate.
        let image = value.pointer("/status/configImage/desiredImage").and_then(Value::as_str);
        image.unwrap_or_default().clone_into(&mut report.desired_image);
        let known = nodes.iter().any(|node| node.name == report.node);
        if report.daemon_report == DaemonReport::Absent || !known {
            break;
        }
        reports.push(report);
    }
    Ok(reports)
}

/// Returns true if a degraded node has no MachineConfigNode among those considered.
fn is_unreported(nodes: &[NodeView], reports: &[MachineConfigNodeView]) -> bool {
    let reported = |node: &NodeView| reports.iter().any(|report| report.node == node.name);
    nodes.iter().any(|node| node.is_degraded() && !reported(node))
}

/// Removes reason and message of the conditions about degraded nodes, and the order of all
/// conditions, because changed ones are last.
fn without_words(status: &mut Value) {
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else {
        return;
    };
    conditions.sort_by_key(|condition| super::text(condition, "type").map(str::to_owned));
    for condition in conditions {
        if matches!(super::text(condition, "type"), Some("NodeDegraded" | "Degraded")) {
            put(condition, "reason", Value::Null);
            put(condition, "message", Value::Null);
        }
    }
}

/// Returns a status in the recordings' format.
fn shown(status: &MachineConfigPoolStatus) -> Result<Value, String> {
    let mut found = serde_json::to_value(status).map_err(|error| error.to_string())?;
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
    let stream = status.os_image_stream.as_ref().map(|stream| stream.name.as_str());
    put(&mut found, "osImageStream", json!(stream.unwrap_or_default()));
    put(&mut found, "observedGeneration", json!(status.observed_generation));
    Ok(found)
}
