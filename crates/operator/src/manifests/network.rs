//! Network policies of the namespace. Pods on the network of their machine, those of daemon and server,
//! are not affected. Policies that an administrator adds allow more.

use serde_json::{Value, json};

use super::{
    NAMESPACE,
    rules::{CONTROLLER_NAME, OPERATOR_NAME},
    workload::METRICS_PORT,
};

/// Namespaces whose pods reach the metrics, for which they need a token too.
const MONITORING: [&str; 3] =
    ["monitoring", "openshift-monitoring", "openshift-user-workload-monitoring"];

/// Process that builds OS images. It does not exist here; the policy of the reference is harmless.
const BUILDER_NAME: &str = "machine-os-builder";

/// Returns the policies in the order in which they are applied: all traffic is denied last.
pub(super) fn policies() -> Vec<Value> {
    let allow = |name: &str| {
        policy(
            &format!("allow-{name}"),
            &json!({
                "podSelector": {"matchLabels": {"k8s-app": name}},
                "policyTypes": ["Ingress"],
                "ingress": [{
                    "from": [{"namespaceSelector": {"matchExpressions": [{
                        "key": "kubernetes.io/metadata.name", "operator": "In", "values": MONITORING,
                    }]}}],
                    "ports": [{"protocol": "TCP", "port": METRICS_PORT}],
                }],
            }),
        )
    };
    vec![
        policy(
            "allow-all-egress",
            &json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}),
        ),
        allow(OPERATOR_NAME),
        allow(CONTROLLER_NAME),
        allow(BUILDER_NAME),
        // Empty lists, and not absent ones, so that rules which others add are removed.
        policy(
            "default-deny",
            &json!({
                "podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": [],
            }),
        ),
    ]
}

/// Returns the names of all policies.
pub(super) fn names() -> Vec<String> {
    let name = |policy: &Value| policy.pointer("/metadata/name")?.as_str().map(str::to_owned);
    policies().iter().filter_map(name).collect()
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    })
}
