//! The dashboard of Grafana: pools, drains, daemons, and the requests of the processes.

use serde_json::{Value, json};

use super::super::NAMESPACE;

/// Label by which Grafana's sidecar finds dashboards.
const SIDECAR: &str = "grafana_dashboard";

/// Name of the ConfigMap, and identifier of the dashboard.
const NAME: &str = "machine-config-dashboard";

/// Height and width of a panel; a row is 24 wide.
const SIZE: (usize, usize) = (8, 12);

/// A panel: title, description, unit, and the expression and legend of each query.
type Panel = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

const PANELS: [Panel; 8] = [
    (
        "Nodes by pool",
        "Nodes that belong to each pool, and those that have its current config.",
        "short",
        &[
            ("sum by (pool) (mco_machine_count)", "{{pool}}: all"),
            ("sum by (pool) (mco_updated_machine_count)", "{{pool}}: updated"),
        ],
    ),
    (
        "Nodes that need attention",
        "Degraded nodes did not reach their config; unavailable ones are being updated or not Ready.",
        "short",
        &[
            ("sum by (pool) (mco_degraded_machine_count)", "{{pool}}: degraded"),
            ("sum by (pool) (mco_unavailable_machine_count)", "{{pool}}: unavailable"),
        ],
    ),
    (
        "Drains that fail",
        "Nodes that are not drained for more than an hour. `mco status` names the pod.",
        "short",
        &[("max by (node) (mcc_drain_err) > 0", "{{node}}")],
    ),
    (
        "Daemons by state",
        "States that daemons report.",
        "short",
        &[("count by (state) (mcd_state)", "{{state}}")],
    ),
    (
        "Drift",
        "Time since which a managed file differs from the config of its node.",
        "dateTimeAsIso",
        &[("mcd_config_drift * 1000 > 0", "{{instance}}")],
    ),
    (
        "Failures of nodes",
        "Reboots and changes of the OS image that failed, and kubelets that are not healthy.",
        "short",
        &[
            ("mcd_reboots_failed_total > 0", "{{instance}}: reboot"),
            ("mcd_pivot_errors_total > 0", "{{instance}}: OS image"),
            ("mcd_kubelet_state > 2", "{{instance}}: kubelet"),
        ],
    ),
    (
        "Requests to the API server",
        "Requests of each process by result.",
        "reqps",
        &[("sum by (job, result) (rate(mco_api_requests_total[5m]))", "{{job}}: {{result}}")],
    ),
    (
        "Failures of requests and watches",
        "Requests that timed out or were repeated, and watches that failed.",
        "ops",
        &[
            ("sum by (job) (rate(mco_api_request_timeouts_total[5m]))", "{{job}}: timeouts"),
            (
                "sum by (job, reason) (rate(mco_api_request_retries_total[5m]))",
                "{{job}}: {{reason}}",
            ),
            (
                "sum by (job, kind) (rate(mco_watch_failures_total[5m]))",
                "{{job}}: watch of {{kind}}",
            ),
        ],
    ),
];

/// Returns the ConfigMap with the dashboard.
pub(super) fn config_map() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {SIDECAR: "1"}},
        "data": {"machine-config.json": dashboard().to_string()},
    })
}

fn dashboard() -> Value {
    let panels: Vec<Value> = PANELS.iter().enumerate().map(|(at, it)| panel(at, it)).collect();
    json!({
        "title": "Machine configuration",
        "uid": NAME,
        "tags": ["mco"],
        "schemaVersion": 39,
        "editable": true,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        ]},
        "panels": panels,
    })
}

fn panel(at: usize, (title, description, unit, queries): &Panel) -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let targets: Vec<Value> = queries
        .iter()
        .zip('A'..='Z')
        .map(|((expression, legend), id)| {
            json!({"refId": id, "datasource": source, "expr": expression, "legendFormat": legend})
        })
        .collect();
    let (height, width) = SIZE;
    json!({
        "id": at + 1,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": source,
        "gridPos": {"h": height, "w": width, "x": at % 2 * width, "y": at / 2 * height},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    })
}
