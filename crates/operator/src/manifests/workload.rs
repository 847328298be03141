//! Deployments, DaemonSets and Services of the four processes.
//!
//! No process has a PodDisruptionBudget: operator and controller have one replica, whose budget would
//! block the drain of its node forever, and pods of DaemonSets are not evicted.

use mco_api::label;
use mco_core::{kubelet::TlsSettings, takeover::Order};
use serde_json::{Value, json};

use super::{
    NAMESPACE, Parameters,
    rules::{CONTROLLER_NAME, DAEMON_NAME, OPERATOR_NAME, SERVER_NAME},
    with,
};

/// Port of `/metrics`, `/livez` and `/readyz` over HTTPS. Compat: the port of the reference.
pub(super) const METRICS_PORT: u16 = 9001;

/// Port of the same on the loopback address, without authentication.
const LOCAL_PORT: u16 = 8797;

/// Port of the server, which has `/livez` and `/readyz` too.
const SERVER_PORT: u16 = 22623;

/// User without rights on a machine.
const NOBODY: u32 = 65534;

/// Seconds after which the pod of a Deployment leaves a machine that is not reachable.
const UNREACHABLE_SECONDS: u32 = 120;

/// Resource requests: CPU and memory. docs/performance.md has the measurements.
type Requests = (&'static str, &'static str);

/// 41 MiB in a roll-out to 1,000 nodes.
const CONTROLLER_REQUESTS: Requests = ("20m", "50Mi");
/// 12 MiB with 1,000 files, and 3 MiB more after a large config.
const DAEMON_REQUESTS: Requests = ("10m", "20Mi");
const OPERATOR_REQUESTS: Requests = ("10m", "30Mi");
/// 30 MiB with 1,000 connections.
const SERVER_REQUESTS: Requests = ("10m", "30Mi");

/// Returns the Deployment of the controller. It has one replica; a second would only wait for the
/// lease.
pub(super) fn controller(parameters: &Parameters) -> Value {
    let lease = format!("--resourcelock-namespace={NAMESPACE}");
    let mut words = vec!["start".to_owned(), lease, verbosity(parameters)];
    words.extend(place(parameters));
    words.extend(tls(parameters));
    words.extend(takeover(&parameters.order));
    deployment(CONTROLLER_NAME, parameters, words, CONTROLLER_REQUESTS)
}

/// Returns the Deployment of the operator. It has one replica; a second would only wait for the
/// lease.
pub(super) fn operator(parameters: &Parameters) -> Value {
    let mut words = vec!["start".to_owned(), format!("--operator-image={}", parameters.image)];
    words.extend(place(parameters));
    words.extend(parameters.profile.iter().map(|it| format!("--profile={}", it.as_str())));
    words.extend(parameters.join_tokens.iter().map(|it| format!("--join-tokens={}", it.as_str())));
    words.extend(takeover(&parameters.order));
    deployment(OPERATOR_NAME, parameters, words, OPERATOR_REQUESTS)
}

/// Returns the flag of an installation in another namespace than the standard one.
fn place(parameters: &Parameters) -> Option<String> {
    (parameters.namespace != label::NAMESPACE).then(|| format!("--namespace={NAMESPACE}"))
}

/// Returns the flags of an order about a cluster that another operator runs.
fn takeover(order: &Order) -> Vec<String> {
    match order {
        Order::HandsOff => Vec::new(),
        Order::TakeOver(build) => {
            vec!["--take-over".to_owned(), format!("--adopt-build={build}")]
        }
    }
}

/// Returns the DaemonSet of the daemon, with the node's root mounted at `/rootfs`.
pub(super) fn daemon(parameters: &Parameters) -> Value {
    let node = json!({"fieldRef": {"fieldPath": "spec.nodeName"}});
    let more = json!({
        // It changes the machine: files of all owners, units, kernel arguments.
        "securityContext": {"privileged": true},
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "env": [release(parameters), {"name": "NODE_NAME", "valueFrom": node}],
        "volumeMounts": [
            {"name": "rootfs", "mountPath": "/rootfs", "mountPropagation": "HostToContainer"},
        ],
    });
    let root = "--root-mount=/rootfs".to_owned();
    let mut words = vec!["start".to_owned(), root, metrics_flag(), verbosity(parameters)];
    words.extend(place(parameters));
    words.extend(tls(parameters));
    // The daemon generates no objects, so that it needs no build.
    if let Order::TakeOver(_) = parameters.order {
        words.push("--take-over".to_owned());
    }
    let container = with(container(DAEMON_NAME, parameters, &words, DAEMON_REQUESTS), more);
    // Another program of the host may have the other port; a daemon that runs without it is healthy.
    let container = with(container, probes(&json!({"host": "127.0.0.1", "port": LOCAL_PORT})));
    let more = json!({
        "hostPID": true,
        "hostNetwork": true,
        "volumes": [{"name": "rootfs", "hostPath": {"path": "/"}}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        // Tainted nodes have a config too.
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        // A running update is not interrupted.
        "terminationGracePeriodSeconds": 600,
    });
    daemon_set(DAEMON_NAME, &with(pod(DAEMON_NAME, &container), more))
}

/// Returns the DaemonSet of the server, on every control plane node.
pub(super) fn server(parameters: &Parameters) -> Value {
    let more = json!({
        "ports": [{"name": "https", "containerPort": SERVER_PORT, "protocol": "TCP"}],
        "securityContext": restricted(),
        "volumeMounts": [
            {"name": "certs", "mountPath": "/etc/ssl/mcs", "readOnly": true},
            {"name": "bootstrap-token", "mountPath": "/etc/mcs/bootstrap-token", "readOnly": true},
        ],
    });
    let url = "--apiserver-url=auto".to_owned();
    let mut words = vec!["start".to_owned(), url, verbosity(parameters)];
    words.extend(place(parameters));
    words.extend(tls(parameters));
    let container = with(container(SERVER_NAME, parameters, &words, SERVER_REQUESTS), more);
    let container = with(container, probes(&json!({"scheme": "HTTPS", "port": SERVER_PORT})));
    let more = json!({
        "hostNetwork": true,
        "volumes": [
            {"name": "certs", "secret": {"secretName": "machine-config-server-tls"}},
            // Without the token the server still runs and says what is missing; the kubelet adds
            // the files when the Secret appears.
            {"name": "bootstrap-token",
                "secret": {"secretName": "node-bootstrapper-token", "optional": true}},
        ],
        "affinity": on_control_plane(),
        "tolerations": control_plane(),
    });
    daemon_set(SERVER_NAME, &with(pod(SERVER_NAME, &container), more))
}

/// Returns the Service of the metrics of a process.
pub(super) fn metrics_service(name: &str) -> Value {
    service(name, &json!([{"name": "metrics", "port": METRICS_PORT, "protocol": "TCP"}]))
}

/// Returns the Service of the servers.
pub(super) fn server_service() -> Value {
    service(SERVER_NAME, &json!([{"name": "https", "port": SERVER_PORT, "protocol": "TCP"}]))
}

/// Returns the flag with which a process serves its metrics to clients with a token.
fn metrics_flag() -> String {
    format!("--secure-metrics-listen-address=[::]:{METRICS_PORT}")
}

fn service(name: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"k8s-app": name}},
        "spec": {"selector": {"k8s-app": name}, "ports": ports},
    })
}

fn deployment(
    name: &str,
    parameters: &Parameters,
    mut words: Vec<String>,
    requests: Requests,
) -> Value {
    // The kubelet probes the address of the pod. A NetworkPolicy limits who else reaches it.
    words.push(metrics_flag());
    let container = container(name, parameters, &words, requests);
    let container = with(container, probes(&json!({"scheme": "HTTPS", "port": METRICS_PORT})));
    let more = json!({
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        "securityContext": restricted(),
    });
    let unreachable = ["unreachable", "not-ready"].map(|taint| {
        json!({
            "key": format!("node.kubernetes.io/{taint}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": UNREACHABLE_SECONDS,
        })
    });
    let tolerations: Vec<Value> =
        control_plane().as_array().into_iter().flatten().cloned().chain(unreachable).collect();
    // Preferred only: not every cluster has control plane nodes that run pods.
    let prefers = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "preference": {"matchExpressions": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
        ]},
    }]}});
    let pod = with(
        pod(name, &with(container, more)),
        json!({
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "affinity": prefers,
            "tolerations": tolerations,
            "terminationGracePeriodSeconds": 30,
        }),
    );
    let more = json!({"replicas": 1, "strategy": {"type": "Recreate"}});
    workload("Deployment", name, &pod, more)
}

fn daemon_set(name: &str, pod: &Value) -> Value {
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}});
    workload("DaemonSet", name, pod, json!({"updateStrategy": rolling}))
}

fn workload(kind: &str, name: &str, pod: &Value, more: Value) -> Value {
    let labels = json!({"k8s-app": name});
    let spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": with(spec, more),
    })
}

fn pod(name: &str, container: &Value) -> Value {
    json!({
        "serviceAccountName": name,
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
    })
}

fn container(
    name: &str,
    parameters: &Parameters,
    words: &[String],
    (cpu, memory): Requests,
) -> Value {
    json!({
        "name": name,
        "image": parameters.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [format!("/usr/bin/{name}")],
        "args": words,
        "env": [release(parameters)],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

/// Returns the security context of a process that only talks to the API server.
fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "runAsUser": NOBODY,
        "runAsGroup": NOBODY,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Returns the probes of a container whose health is served at `address`.
///
/// A container is restarted only after ten minutes without an answer: a restart repairs a queue that
/// does not move, and makes nothing better while the API server is away.
fn probes(address: &Value) -> Value {
    let get = |path: &str| with(address.clone(), json!({"path": path}));
    json!({
        "livenessProbe": {"httpGet": get("/livez"), "initialDelaySeconds": 10, "periodSeconds": 30,
            "timeoutSeconds": 10, "failureThreshold": 20},
        "readinessProbe": {"httpGet": get("/readyz"), "periodSeconds": 10, "timeoutSeconds": 5},
    })
}

/// Returns the flag with the verbosity of the log.
fn verbosity(parameters: &Parameters) -> String {
    format!("--v={}", parameters.verbosity)
}

/// Returns the flags with the TLS versions and cipher suites.
fn tls(parameters: &Parameters) -> Vec<String> {
    let TlsSettings { min_version, ciphers } = &parameters.tls;
    // A flag without a value would be an error.
    let ciphers = (!ciphers.is_empty()).then(|| ciphers.join(","));
    let ciphers = ciphers.map(|ciphers| format!("--tls-cipher-suites={ciphers}"));
    let min_version = (!min_version.is_empty()).then(|| format!("--tls-min-version={min_version}"));
    ciphers.into_iter().chain(min_version).collect()
}

/// Returns the variable with the version that the processes report.
fn release(parameters: &Parameters) -> Value {
    json!({"name": "RELEASE_VERSION", "value": parameters.release})
}

/// Labels of control plane nodes: that of Kubernetes, and that of `MicroK8s`, which gives its nodes no role.
const CONTROL_PLANE: [&str; 2] =
    ["node-role.kubernetes.io/control-plane", "node.kubernetes.io/microk8s-controlplane"];

/// Returns the affinity to control plane nodes. The values of the labels do not matter: they are empty in
/// kubeadm, and `true` in k3s, RKE2 and k0s.
fn on_control_plane() -> Value {
    let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    let terms = json!({"nodeSelectorTerms": CONTROL_PLANE.map(term)});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn control_plane() -> Value {
    let taint = |name: &str| json!({"key": format!("node-role.kubernetes.io/{name}"), "operator": "Exists", "effect": "NoSchedule"});
    json!([taint("control-plane"), taint("master"), taint("etcd")])
}
