//! What a cluster needs to run our four processes: namespace, accounts, rights, workloads.
//!
//! Each file of `deploy/` is one process; `00-namespace.yaml` comes first by its name, so that
//! `kubectl apply -f deploy/` does everything in order. The kinds are in `deploy/crds`, and the
//! operator installs them as well.

mod rights;
mod workload;

use serde_json::{Value, json};

use self::{
    rights::{Rule, cluster_role, role},
    workload::{controller, daemon, operator, server},
};

/// The image that the workloads run.
pub const IMAGE: &str = "localhost/mco:latest";

/// Where everything of ours lives.
const NAMESPACE: &str = mco_api::label::NAMESPACE;

/// One process of the four.
struct Process {
    name: &'static str,
    /// What it may do with objects of the whole cluster.
    cluster: &'static [Rule],
    /// What it may do with objects of our namespace.
    namespace: &'static [Rule],
    /// What the API server refuses it although it may do it.
    guard: fn() -> Vec<Value>,
    workload: fn() -> Value,
}

const PROCESSES: &[Process] = &[
    Process {
        name: "machine-config-controller",
        cluster: rights::CONTROLLER,
        namespace: rights::CONTROLLER_OWN,
        guard: Vec::new,
        workload: controller,
    },
    Process {
        name: "machine-config-daemon",
        cluster: rights::DAEMON,
        namespace: rights::BUNDLES,
        guard: rights::node_guard,
        workload: daemon,
    },
    Process {
        name: "machine-config-operator",
        cluster: rights::OPERATOR,
        namespace: rights::LEADER,
        guard: Vec::new,
        workload: operator,
    },
    Process {
        name: "machine-config-server",
        cluster: rights::SERVER,
        namespace: rights::BUNDLES,
        guard: Vec::new,
        workload: server,
    },
];

/// Name and text of every file, in the order they are applied in.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let mut files = vec![("00-namespace.yaml".to_owned(), yaml(&[namespace()]))];
    files.extend(PROCESSES.iter().map(|process| {
        let mut objects = vec![account(process.name)];
        objects.extend(cluster_role(process.name, process.cluster));
        objects.extend(role(process.name, NAMESPACE, process.namespace));
        objects.extend(rights::events(process.name));
        objects.extend((process.guard)());
        objects.push((process.workload)());
        (format!("{}.yaml", process.name), yaml(&objects))
    }));
    files
}

fn yaml(objects: &[Value]) -> String {
    let texts = objects.iter().filter_map(Value::as_object).map(mco_api::object_yaml);
    texts.collect::<Vec<_>>().join("---\n")
}

fn namespace() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            // The daemon changes the machine it runs on.
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    })
}

fn account(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": NAMESPACE},
    })
}
