//! Deployments and DaemonSets of the four processes.

use serde_json::{Value, json};

use super::{IMAGE, NAMESPACE};

/// Port of `/metrics`, `/livez` and `/readyz`.
const ADMIN_PORT: u16 = 8797;

/// Port of the server, which has `/livez` and `/readyz` too.
const SERVER_PORT: u16 = 22623;

/// Returns the Deployment of the controller. It has one replica; a second would only wait for the
/// lease.
pub(super) fn controller() -> Value {
    let lease = format!("--resourcelock-namespace={NAMESPACE}");
    deployment("machine-config-controller", &["start", &lease])
}

/// Returns the Deployment of the operator. It has one replica; a second would only wait for the
/// lease.
pub(super) fn operator() -> Value {
    let image = format!("--operator-image={IMAGE}");
    deployment("machine-config-operator", &["start", &image])
}

/// Returns the DaemonSet of the daemon, with the node's root mounted at `/rootfs`.
pub(super) fn daemon() -> Value {
    let name = "machine-config-daemon";
    let node = json!({"fieldRef": {"fieldPath": "spec.nodeName"}});
    let more = json!({
        "securityContext": {"privileged": true},
        "env": [release(), {"name": "NODE_NAME", "valueFrom": node}],
        "volumeMounts": [
            {"name": "rootfs", "mountPath": "/rootfs", "mountPropagation": "HostToContainer"},
        ],
    });
    let container = with(container(name, &["start", "--root-mount=/rootfs"]), more);
    // On the network of the host, the address is not reachable from other machines.
    let container = with(container, probes(&json!({"host": "127.0.0.1", "port": ADMIN_PORT})));
    let more = json!({
        "hostPID": true,
        "hostNetwork": true,
        "volumes": [{"name": "rootfs", "hostPath": {"path": "/"}}],
        // Tainted nodes have a config too.
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        // A running update is not interrupted.
        "terminationGracePeriodSeconds": 600,
    });
    daemon_set(name, &with(pod(name, &container), more))
}

/// Returns the DaemonSet of the server, on every control plane node.
pub(super) fn server() -> Value {
    let name = "machine-config-server";
    let url = "--apiserver-url=auto";
    let more = json!({"volumeMounts": [
        {"name": "certs", "mountPath": "/etc/ssl/mcs", "readOnly": true},
        {"name": "bootstrap-token", "mountPath": "/etc/mcs/bootstrap-token", "readOnly": true},
    ]});
    let container = with(container(name, &["start", url]), more);
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
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": control_plane(),
    });
    daemon_set(name, &with(pod(name, &container), more))
}

fn deployment(name: &str, words: &[&str]) -> Value {
    // The kubelet probes the address of the pod.
    let address = format!("--metrics-listen-address=0.0.0.0:{ADMIN_PORT}");
    let words: Vec<&str> = words.iter().copied().chain([address.as_str()]).collect();
    let container = with(container(name, &words), probes(&json!({"port": ADMIN_PORT})));
    let ports = json!({"ports": [{"name": "metrics", "containerPort": ADMIN_PORT}]});
    let pod = with(pod(name, &with(container, ports)), json!({"tolerations": control_plane()}));
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

/// Returns an object with more members; those that it has already are replaced.
fn with(mut object: Value, more: Value) -> Value {
    if let (Some(members), Value::Object(more)) = (object.as_object_mut(), more) {
        members.extend(more);
    }
    object
}

fn pod(name: &str, container: &Value) -> Value {
    json!({
        "serviceAccountName": name,
        "priorityClassName": "system-cluster-critical",
        "containers": [container],
    })
}

fn container(name: &str, words: &[&str]) -> Value {
    json!({
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": [format!("/usr/bin/{name}")],
        "args": words,
        "env": [release()],
        "resources": {"requests": {"cpu": "20m", "memory": "50Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
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

/// Returns the variable with the version that the processes report.
fn release() -> Value {
    json!({"name": "RELEASE_VERSION", "value": env!("CARGO_PKG_VERSION")})
}

fn control_plane() -> Value {
    let taint = |name: &str| json!({"key": format!("node-role.kubernetes.io/{name}"), "operator": "Exists", "effect": "NoSchedule"});
    json!([taint("control-plane"), taint("master")])
}
