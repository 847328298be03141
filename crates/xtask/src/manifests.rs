//! Generates the manifests of `deploy/`: namespace, service accounts, RBAC and workloads.
//!
//! Each file holds one process. `00-namespace.yaml` sorts first, so that `kubectl apply -f deploy/`
//! applies everything in order. The CRDs are in `deploy/crds`; the operator installs them as well.

mod rbac;
mod workload;

use serde_json::{Value, json};

use self::{
    rbac::{Rule, cluster_role, role},
    workload::{controller, daemon, operator, server},
};

/// Image of the workloads.
pub const IMAGE: &str = "localhost/mco:latest";

/// Namespace of all namespaced objects.
const NAMESPACE: &str = mco_api::label::NAMESPACE;

/// One of the four processes.
struct Process {
    name: &'static str,
    /// Rules for objects of the whole cluster.
    cluster: &'static [Rule],
    /// Rules for objects in the namespace.
    namespace: &'static [Rule],
    /// Rules for objects in other namespaces.
    elsewhere: &'static [(&'static str, &'static [Rule])],
    /// Further objects: admission policies that restrict the process, roles that it hands out.
    further: fn() -> Vec<Value>,
    workload: fn() -> Value,
}

const PROCESSES: &[Process] = &[
    Process {
        name: "machine-config-controller",
        cluster: rbac::CONTROLLER,
        namespace: rbac::CONTROLLER_OWN,
        elsewhere: &[],
        further: Vec::new,
        workload: controller,
    },
    Process {
        name: "machine-config-daemon",
        cluster: rbac::DAEMON,
        namespace: rbac::BUNDLES,
        elsewhere: &[],
        further: rbac::node_guard,
        workload: daemon,
    },
    Process {
        name: "machine-config-operator",
        cluster: rbac::OPERATOR,
        namespace: rbac::OPERATOR_OWN,
        elsewhere: &[],
        further: rbac::join_tokens,
        workload: operator,
    },
    Process {
        name: "machine-config-server",
        cluster: rbac::SERVER,
        namespace: rbac::BUNDLES,
        elsewhere: rbac::SERVER_ELSEWHERE,
        further: Vec::new,
        workload: server,
    },
];

/// Returns the name and text of every file, in the order in which they are applied.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![("00-namespace.yaml".to_owned(), yaml(&namespaces()))];
    files.extend(PROCESSES.iter().map(|process| {
        let mut objects = vec![account(process.name)];
        objects.extend(cluster_role(process.name, process.cluster));
        objects.extend(role(process.name, NAMESPACE, process.namespace));
        for (namespace, rules) in process.elsewhere {
            objects.extend(role(process.name, namespace, rules));
        }
        objects.extend(rbac::events(process.name));
        objects.extend((process.further)());
        objects.push((process.workload)());
        (format!("{}.yaml", process.name), yaml(&objects))
    }));
    files
}

fn yaml(objects: &[Value]) -> String {
    let texts = objects.iter().filter_map(Value::as_object).map(mco_api::object_yaml);
    texts.collect::<Vec<_>>().join("---\n")
}

fn namespaces() -> [Value; 2] {
    let namespace = |name: &str, level: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": {"pod-security.kubernetes.io/enforce": level},
            },
        })
    };
    // The daemon runs privileged pods; no pod runs beside the join tokens.
    [namespace(NAMESPACE, "privileged"), namespace(mco_api::join_token::NAMESPACE, "restricted")]
}

fn account(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": NAMESPACE},
    })
}
