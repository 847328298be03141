//! Objects of the Prometheus operator, where the cluster has their kinds, and a dashboard of Grafana.

mod dashboard;

use serde_json::{Value, json};

use super::{
    NAMESPACE,
    rules::{CONTROLLER_NAME, DAEMON_NAME},
};

/// API group and version of the Prometheus operator.
const API: &str = "monitoring.coreos.com/v1";

/// File with the token of Prometheus, in its pod.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Returns the objects of the controller.
pub(super) fn of_controller() -> Vec<Value> {
    let groups = json!([
        {"name": "os-image-override.rules", "rules": [
            {"record": "os_image_url_override:sum", "expr": "sum(os_image_url_override)"},
        ]},
        {"name": "mcc-drain-error", "rules": [alert(
            "MCCDrainError",
            "mcc_drain_err > 0",
            ("0s", "warning"),
            "A node cannot be drained for its update.",
            "Node {{ $labels.node }} is not drained for more than an hour, so its pool does not \
             proceed. `mco status` names the pod and its PodDisruptionBudget.",
        )]},
        {"name": "mcc-pool-alert", "rules": [alert(
            "MCCPoolAlert",
            "mcc_pool_alert > 0",
            ("0s", "warning"),
            "A node is in two custom pools.",
            "Node {{ $labels.node }} has the roles of several pools. Remove all but one of its \
             labels node-role.kubernetes.io/.",
        )]},
        {"name": "mcc-boot-image-skew-enforcement-none", "rules": [alert(
            "MCCBootImageSkewEnforcementNone",
            "mcc_boot_image_skew_enforcement_none == 1",
            ("0s", "info"),
            "The age of boot images is not checked.",
            "The MachineConfiguration cluster has bootImageSkewEnforcement in mode None. Machines may \
             be created from boot images that cannot join.",
        )]},
    ]);
    vec![monitor(CONTROLLER_NAME), rules(CONTROLLER_NAME, &groups), dashboard::config_map()]
}

/// Returns the objects of the daemons.
pub(super) fn of_daemon() -> Vec<Value> {
    let groups = json!([
        {"name": "mcd-reboot-error", "rules": [alert(
            "MCDRebootError",
            "mcd_reboots_failed_total > 0",
            ("5m", "critical"),
            "A node did not reboot for its update.",
            "The reboot of {{ $labels.instance }} failed. `journalctl -u systemd-logind` on the node \
             tells what inhibits it.",
        )]},
        {"name": "mcd-pivot-error", "rules": [alert(
            "MCDPivotError",
            "mcd_pivot_errors_total > 0",
            ("2m", "warning"),
            "The OS image of a node cannot be changed.",
            "The change of the OS image of {{ $labels.instance }} failed. `mco status` has the error.",
        )]},
        {"name": "mcd-kubelet-health-state-error", "rules": [alert(
            "KubeletHealthState",
            "mcd_kubelet_state > 2",
            ("0s", "warning"),
            "The kubelet of a node is not healthy.",
            "The kubelet of {{ $labels.instance }} failed its last health checks. `systemctl status \
             kubelet` on the node tells why.",
        )]},
    ]);
    vec![monitor(DAEMON_NAME), rules(DAEMON_NAME, &groups)]
}

/// Returns the `ServiceMonitor` of a process. The certificate is made by the process at its start, so that
/// no client can verify it.
fn monitor(name: &str) -> Value {
    json!({
        "apiVersion": API,
        "kind": "ServiceMonitor",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"k8s-app": name}},
        "spec": {
            "endpoints": [{
                "port": "metrics", "interval": "30s", "path": "/metrics", "scheme": "https",
                "bearerTokenFile": TOKEN, "tlsConfig": {"insecureSkipVerify": true},
            }],
            "namespaceSelector": {"matchNames": [NAMESPACE]},
            "selector": {"matchLabels": {"k8s-app": name}},
        },
    })
}

/// Returns the `PrometheusRule` of a process: the alerts of the reference whose metrics exist, in our words.
fn rules(name: &str, groups: &Value) -> Value {
    json!({
        "apiVersion": API,
        "kind": "PrometheusRule",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"k8s-app": name}},
        "spec": {"groups": groups},
    })
}

/// Returns an alert that fires after a time, with a severity.
fn alert(
    name: &str,
    expression: &str,
    (after, severity): (&str, &str),
    summary: &str,
    description: &str,
) -> Value {
    json!({
        "alert": name,
        "expr": expression,
        "for": after,
        "labels": {"severity": severity, "namespace": NAMESPACE},
        "annotations": {"summary": summary, "description": description},
    })
}
