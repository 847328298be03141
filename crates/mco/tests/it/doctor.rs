//! `mco doctor`: before an installation, after it, and in trouble.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
};
use kube::Api;
use mco_api::{ClusterOperator, MachineConfig, MachineConfigPool, label};
use mco_testkit::objects;
use serde_json::{Value, json};

use crate::{health::Cluster, mco};

#[test]
fn an_unreachable_cluster_is_an_error_with_a_fix() {
    let folder = crate::Folder::new(&[(
        "kubeconfig",
        b"apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: {cluster: a, \
          user: a}\nclusters:\n- name: a\n  cluster: {server: \"http://127.0.0.1:1\"}\nusers:\n- name: a\n  \
          user: {}\n",
    )]);
    let run = folder.mco(&["doctor", "--kubeconfig", "kubeconfig"]).output().unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error    API server     the API server does not answer"), "{text}");
    assert!(text.contains("fix: check the address"), "{text}");
    let run = mco(&["doctor", "--kubeconfig", "/does/not/exist"]).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
}

#[tokio::test]
async fn a_cluster_is_examined_on_the_embedded_api_server() {
    a_cluster_is_examined(Cluster::embedded().await).await;
}

#[tokio::test]
async fn a_cluster_is_examined_on_a_real_kube_apiserver() {
    if let Some(cluster) = Cluster::real().await {
        a_cluster_is_examined(cluster).await;
    }
}

async fn findings(cluster: &Cluster) -> (i32, Vec<Value>) {
    let (code, text, errors) = cluster.run(&["doctor", "-o", "json"]).await;
    let found: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{errors}"));
    (code, found["findings"].as_array().unwrap().clone())
}

/// Returns the text of the finding about a part that contains `text`.
fn find<'f>(findings: &'f [Value], severity: &str, part: &str, text: &str) -> &'f Value {
    let found = findings.iter().find(|finding| {
        finding["severity"] == severity
            && finding["part"] == part
            && finding["text"].as_str().unwrap().contains(text)
    });
    found.unwrap_or_else(|| panic!("{severity} {part} {text:?} in {findings:#?}"))
}

fn node(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}, "annotations": annotations},
        "status": {"nodeInfo": {"kubeletVersion": "v1.20.0", "operatingSystem": "linux",
            "osImage": name, "containerRuntimeVersion": "docker://20", "architecture": "amd64",
            "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
            "systemUUID": ""}},
    })
}

async fn a_cluster_is_examined(cluster: Cluster) {
    let client = &cluster.client;
    let (code, found) = findings(&cluster).await;
    find(&found, "ok", "api-server", "answers");
    find(&found, "ok", "rights", "you have the rights");
    find(&found, "ok", "definitions", "no kind exists yet");
    find(&found, "ok", "operator", "mco is not installed");
    find(&found, "warning", "nodes", "the cluster has no nodes");
    assert_eq!(code, 0, "warnings do not fail");
    let (code, _, _) = cluster.run(&["doctor", "--strict"]).await;
    assert_eq!(code, 1);

    cluster.install_kinds().await;
    trouble(&cluster).await;
    let (code, found) = findings(&cluster).await;
    assert_eq!(code, 2);
    assert!(found.iter().all(|it| it["severity"] == "ok" || it["fix"].is_string()), "{found:#?}");
    find(&found, "ok", "definitions", "kinds are served");
    find(&found, "error", "namespace", "restricted");
    find(&found, "error", "operator", "Degraded (RequiredPoolsFailed): pool worker");
    find(&found, "error", "operator", "there is no Deployment machine-config-operator");
    find(&found, "error", "controller", "has not renewed its Lease");
    find(&found, "error", "pools", "pool worker is degraded: Node w-0 is reporting");
    find(&found, "error", "configs", "pool worker refers to MachineConfig rendered-worker-1");
    find(&found, "error", "configs", "MachineConfig/99-broken");
    find(&found, "error", "nodes", "node w-0 is degraded: content mismatch");
    find(&found, "warning", "nodes", "docker://20");
    find(&found, "warning", "nodes", "kubelet v1.20.0 of nodes w-0, w-1 is more than three");
    find(&found, "error", "daemon", "the daemon of node w-1 has not reported");
    find(&found, "warning", "drains", "pod shop/web-0: PodDisruptionBudget shop/web");
    find(&found, "warning", "first-boot", "FirstBootUnauthenticated");

    let (_, text, _) = cluster.run(&["doctor"]).await;
    assert!(text.contains("error    pools          pool worker is degraded"), "{text}");
    assert!(text.contains("fix: run: kubectl annotate --overwrite controllerconfig"), "{text}");
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let pool = pools.get("worker").await.unwrap();
    assert_eq!(pool.metadata.generation, Some(1), "nothing was changed");
}

/// Creates a cluster in which everything is wrong.
async fn trouble(cluster: &Cluster) {
    let client = &cluster.client;
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespaces = Api::<Namespace>::all(client.clone());
    cluster.put(namespaces, label::NAMESPACE, json!({"metadata": {"labels": labels}})).await;
    objects::create_controller_config(client, "v1").await.unwrap();
    let time = "2026-01-01T00:00:00Z";
    let degraded = json!({"spec": {}, "status": {"conditions": [{"type": "Degraded", "status": "True",
        "reason": "RequiredPoolsFailed", "message": "pool worker", "lastTransitionTime": time}]}});
    cluster.put(Api::<ClusterOperator>::all(client.clone()), "machine-config", degraded).await;
    let lease = json!({"spec": {"holderIdentity": "c", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let leases = || Api::<Lease>::namespaced(client.clone(), label::NAMESPACE);
    for name in ["machine-config", "machine-config-controller"] {
        cluster.put(leases(), name, lease.clone()).await;
    }
    let pool = json!({
        "spec": {"configuration": {"name": "rendered-worker-1"},
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}},
        "status": {"machineCount": 2, "updatedMachineCount": 0, "readyMachineCount": 0,
            "unavailableMachineCount": 0, "degradedMachineCount": 1, "certExpirys": [],
            "configuration": {}, "conditions": [
            {"type": "Degraded", "status": "True", "message": "Node w-0 is reporting: \"a\"",
                "lastTransitionTime": time},
            {"type": "NodeDegraded", "status": "True", "message": "Node w-0 is reporting: \"a\"",
                "lastTransitionTime": time}]},
    });
    cluster.put(Api::<MachineConfigPool>::all(client.clone()), "worker", pool).await;
    let broken = json!({
        "metadata": {"labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "9.9.0"}}},
    });
    cluster.put(Api::<MachineConfig>::all(client.clone()), "99-broken", broken).await;
    let record = json!({"request": "drain-a", "since": time, "attempts": 3, "blockers": [{
        "pod": "shop/web-0", "why": "PodDisruptionBudget shop/web allows no disruption",
        "since": time}]});
    let failed = json!({
        "machineconfiguration.openshift.io/currentConfig": "rendered-worker-0",
        "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1",
        "machineconfiguration.openshift.io/state": "Degraded",
        "machineconfiguration.openshift.io/reason": "content mismatch for file \"/etc/a\"",
        "machineconfiguration.openshift.io/drainRecord": record.to_string(),
    });
    let nodes = || Api::<Node>::all(client.clone());
    cluster.put(nodes(), "w-0", node("w-0", &failed)).await;
    cluster.put(nodes(), "w-1", node("w-1", &json!({}))).await;
}
