//! The ClusterOperator through a rollout, a degraded node, a paused pool, a pool that cannot be
//! rendered and processes that do not run, on both API servers. The test acts as the controller: it
//! computes the statuses of pools from nodes, with the controller's own function.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
    events::v1::Event,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams},
};
use mco_api::{
    ClusterOperator, ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigPool,
    MachineConfiguration, annotation, condition::PoolCondition, label,
};
use mco_cluster::client;
use mco_core::{
    rollout::NodeView,
    status::{self, Finding, Inputs, MachineConfigNodeView, StatusContext},
};
use mco_testkit::{
    api::{self, ApiServer as _, KubeApiServer},
    object_wait,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Operator, cluster, condition, config, wait};

const PREFIX: &str = "machineconfiguration.openshift.io/";

/// The clients of the administrator and of the operator.
struct Clients {
    admin: Client,
    operator: Client,
}

#[tokio::test]
async fn conditions_follow_the_pools_on_the_embedded_api_server() {
    let client = cluster().await;
    conditions_follow_the_pools(Clients { admin: client.clone(), operator: client }).await;
}

#[tokio::test]
async fn conditions_follow_the_pools_on_a_real_kube_apiserver() {
    if let Some((server, clients)) = real().await {
        conditions_follow_the_pools(clients).await;
        drop(server);
    }
}

/// A kube-apiserver with the directory of its data.
struct Server(KubeApiServer, #[expect(dead_code, reason = "removed after the server")] TempDir);

/// Starts a kube-apiserver, on which the operator has the rights of its manifest.
async fn real() -> Option<(Server, Clients)> {
    let folder = tempfile::tempdir().unwrap();
    let server = Server(KubeApiServer::alone(folder.path()).unwrap()?, folder);
    let admin = client::connect(Some(server.0.kubeconfig())).await.unwrap();
    let account = api::account(&server.0, "machine-config-operator").unwrap();
    let operator = client::connect(Some(&account)).await.unwrap();
    Some((server, Clients { admin, operator }))
}

/// Three workers, as their daemons describe them.
struct Workers {
    client: Client,
    nodes: Vec<Node>,
}

impl Workers {
    fn new(client: &Client) -> Self {
        let nodes = ["a", "b", "c"].map(|name| {
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let node = json!({"metadata": {"name": name}, "status": {"conditions": ready}});
            serde_json::from_value(node).unwrap()
        });
        Self { client: client.clone(), nodes: nodes.into() }
    }

    /// Sets current config, desired config, state and reason of a node.
    fn set(&mut self, index: usize, current: &str, desired: &str, state: &str, reason: &str) {
        let pairs = [
            ("currentConfig", current),
            ("desiredConfig", desired),
            ("state", state),
            ("reason", reason),
        ];
        let annotations = pairs.map(|(key, text)| (format!("{PREFIX}{key}"), text.to_owned()));
        self.nodes[index].metadata.annotations = Some(annotations.into());
    }

    fn set_all(&mut self, config: &str) {
        (0..self.nodes.len()).for_each(|index| self.set(index, config, config, "Done", ""));
    }

    /// Writes the status of the pool as the controller does.
    async fn report(&self, render: Finding) {
        let pool = api_of(&self.client).get("worker").await.unwrap();
        report(&self.client, pool, &self.nodes, render).await;
    }
}

fn api_of(client: &Client) -> Api<MachineConfigPool> {
    Api::all(client.clone())
}

async fn report(client: &Client, mut pool: MachineConfigPool, nodes: &[Node], render: Finding) {
    let now = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let conditions = &mut pool.status.get_or_insert_default().conditions;
    status::set(conditions, &PoolCondition::RenderDegraded, render, &now);
    let views: Vec<NodeView> = nodes.iter().map(NodeView::of).collect();
    let reports: Vec<_> =
        views.iter().map(|view| MachineConfigNodeView::without_report(&view.name)).collect();
    let context = StatusContext::default();
    let status =
        status::pool(&Inputs { pool: &pool, nodes: &views, reports: &reports, context, now });
    let name = pool.metadata.name.as_deref().unwrap();
    merge_status(&api_of(client), name, json!(status)).await;
}

async fn merge_status<K>(api: &Api<K>, name: &str, status: Value)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Creates or changes an object.
async fn put<K>(api: &Api<K>, name: &str, object: Value)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut object = object;
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object["metadata"]["name"] = json!(name);
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(object)).await.unwrap();
}

async fn set_spec(client: &Client, pool: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    api_of(client).patch(pool, &PatchParams::default(), &patch).await.unwrap();
}

fn fine() -> Finding {
    Finding::no("", "")
}

async fn wait_for_text(
    client: &Client,
    kind: &str,
    start: &str,
    parts: &[&str],
) -> ClusterOperator {
    let what = format!("{kind}: {start} {parts:?}");
    let holds = |operator: &ClusterOperator| {
        let text = condition(operator, kind);
        text.starts_with(start) && parts.iter().all(|part| text.contains(part))
    };
    wait(client, &what, holds).await
}

fn extension(operator: &ClusterOperator) -> Value {
    let status = operator.status.as_ref().unwrap();
    serde_json::from_str(status.extension.as_ref().unwrap().get()).unwrap()
}

// covers: O24, O27, O28, O29, O30, O31, O32, O33, O34, O36
async fn conditions_follow_the_pools(Clients { admin, operator }: Clients) {
    let running = Operator::start(&operator, &config("v1", "4.20.0"));
    let first = wait_for_text(&admin, "Progressing", "True : Working towards 4.20.0", &[]).await;
    assert_eq!(first.status.as_ref().unwrap().related_objects.len(), 30);
    object_wait::wait_until(api_of(&admin), "worker", "the pool", |pool| pool.is_some())
        .await
        .unwrap();
    let mut workers = Workers::new(&admin);

    first_version(&admin, &mut workers).await;
    a_rollout(&admin, &mut workers).await;
    a_degraded_node(&admin, &mut workers).await;
    a_paused_pool(&admin, &mut workers).await;
    a_broken_render(&admin, &workers).await;
    settings(&admin).await;
    stopped_processes(&admin).await;
    columns(&admin).await;
    running.stop().await;
}

/// Creates a rendered config with another OS image and release than those of the cluster.
async fn put_config_with_image(admin: &Client, name: &str, annotations: Value) {
    let spec =
        json!({"osImageURL": "registry.test/own:1", "config": {"ignition": {"version": "3.5.0"}}});
    let object = json!({"metadata": {"annotations": annotations}, "spec": spec});
    put(&Api::<MachineConfig>::all(admin.clone()), name, object).await;
}

async fn first_version(admin: &Client, workers: &mut Workers) {
    // An OS image of the user is no failure, with the annotation of the reference and without it.
    let overridden = json!({annotation::OS_IMAGE_URL_OVERRIDDEN.name(): "true"});
    for (pool, annotations) in [("master", overridden), ("worker", json!({}))] {
        let name = format!("rendered-{pool}-1");
        put_config_with_image(admin, &name, annotations).await;
        set_spec(admin, pool, json!({"configuration": {"name": name}})).await;
    }
    workers.set_all("rendered-worker-1");
    workers.report(fine()).await;
    let master = api_of(admin).get("master").await.unwrap();
    report(admin, master, &[], fine()).await;
    let found = wait_for_text(admin, "Progressing", "False : Cluster version is 4.20.0", &[]).await;
    let found = wait_for_all_updated(admin, found, "rendered-worker-1").await;
    assert_eq!(found.status.as_ref().unwrap().versions[0].version, "4.20.0");
    assert_eq!(condition(&found, "Degraded"), "False : ");
    assert_eq!(condition(&found, "Upgradeable"), "True AsExpected: ");
    assert_eq!(condition(&found, "EvaluationConditionsDetected"), "False AsExpected: ");
    wait_for_event(admin, "OperatorVersionChanged", "4.20.0").await;
}

/// Waits until the extension says that all workers have the config.
async fn wait_for_all_updated(
    admin: &Client,
    found: ClusterOperator,
    config: &str,
) -> ClusterOperator {
    let text = format!("all 3 nodes are at latest configuration {config}");
    let expected = json!({
        "master": "all 0 nodes are at latest configuration rendered-master-1", "worker": text,
    });
    if extension(&found) == expected {
        return found;
    }
    wait(admin, "the summaries of the pools", |o| extension(o) == expected).await
}

async fn a_rollout(admin: &Client, workers: &mut Workers) {
    set_spec(admin, "worker", json!({"configuration": {"name": "rendered-worker-2"}})).await;
    let updating = "True PoolUpdating: Cluster version is 4.20.0: MachineConfigPool worker is \
        updating to rendered-worker-2: ";
    wait_for_text(admin, "Progressing", updating, &["3 of 3 nodes updated"]).await;
    workers.report(fine()).await;
    wait_for_text(admin, "Progressing", updating, &["0 of 3 nodes updated, 0 ready"]).await;
    workers.set(0, "rendered-worker-2", "rendered-worker-2", "Done", "");
    workers.set(1, "rendered-worker-1", "rendered-worker-2", "Working", "");
    workers.report(fine()).await;
    let found = wait_for_text(admin, "Progressing", updating, &["1 of 3 nodes updated"]).await;
    assert_eq!(
        extension(&found)["worker"],
        "1 (ready 1) out of 3 nodes are updating to latest configuration rendered-worker-2"
    );
    assert_eq!(extension(&found).get("lastSyncError"), None);
    assert!(condition(&found, "Available").starts_with("True AsExpected: "));
}

async fn a_degraded_node(admin: &Client, workers: &mut Workers) {
    let cause = "unexpected on-disk state validating against rendered-worker-1: content mismatch \
        for file \"/etc/chrony.conf\"";
    workers.set(1, "rendered-worker-1", "rendered-worker-2", "Degraded", cause);
    workers.report(fine()).await;
    let start = "True RequiredPoolsFailed: Failed to resync 4.20.0 because: MachineConfigPool \
        worker is not ready, retrying. Status: (pool degraded: true total: 3, ";
    let parts = ["Node b is reporting", "/etc/chrony.conf", "; to fix it: restore the file"];
    let found = wait_for_text(admin, "Degraded", start, &parts).await;
    let blocked = condition(&found, "Upgradeable");
    assert!(blocked.starts_with("False DegradedPool: One or more"), "{blocked}");
    let progress = condition(&found, "Progressing");
    assert!(
        progress.starts_with("True PoolUpdating: Error while reconciling 4.20.0"),
        "{progress}"
    );
    let summary = extension(&found);
    let text = summary["worker"].as_str().unwrap();
    assert!(text.starts_with("pool is degraded because nodes fail with \"1 nodes"), "{text}");
    assert!(summary["lastSyncError"].as_str().unwrap().contains("Node b is reporting"));
    wait_for_event(admin, "OperatorDegraded: RequiredPoolsFailed", "Node b").await;

    workers.set(1, "rendered-worker-2", "rendered-worker-2", "Done", "");
    workers.report(fine()).await;
    let found = wait_for_text(admin, "Degraded", "False : ", &[]).await;
    assert_eq!(extension(&found).get("lastSyncError"), None);
}

async fn a_paused_pool(admin: &Client, workers: &mut Workers) {
    set_spec(admin, "worker", json!({"paused": true})).await;
    workers.report(fine()).await;
    let paused = "True PoolPaused: Cluster version is 4.20.0: MachineConfigPool worker is paused, \
        and 2 of 3 nodes have rendered-worker-2; to continue, run: kubectl patch";
    let found = wait_for_text(admin, "Progressing", paused, &[]).await;
    assert_eq!(condition(&found, "Degraded"), "False : ", "a pause is a decision of the user");
    set_spec(admin, "worker", json!({"paused": false})).await;
    workers.set(2, "rendered-worker-2", "rendered-worker-2", "Done", "");
    workers.report(fine()).await;
    let found = wait_for_text(admin, "Progressing", "False : Cluster version is 4.20.0", &[]).await;
    wait_for_all_updated(admin, found, "rendered-worker-2").await;
}

async fn a_broken_render(admin: &Client, workers: &Workers) {
    let text = "Failed to render configuration for pool worker: parsing Ignition config failed";
    workers.report(Finding::yes("", text)).await;
    let parts = [text, "; to fix it: fix or delete the MachineConfig"];
    let found = wait_for_text(admin, "Degraded", "True RequiredPoolsFailed: ", &parts).await;
    let summary = extension(&found);
    let summary = summary["worker"].as_str().unwrap();
    assert!(summary.starts_with("pool is degraded because rendering fails with \"\": \"Failed"));
    workers.report(fine()).await;
    wait_for_text(admin, "Degraded", "False : ", &[]).await;
}

async fn settings(admin: &Client) {
    let kubelets = Api::<KubeletConfig>::all(admin.clone());
    put(&kubelets, "swap", json!({"spec": {"kubeletConfig": {"failSwapOn": false}}})).await;
    let swap = "failswapon: KubeletConfig setting is currently unsupported by OpenShift";
    let kind = "EvaluationConditionsDetected";
    wait_for_text(admin, kind, &format!("True {swap}: "), &[]).await;
    let engines = Api::<ContainerRuntimeConfig>::all(admin.clone());
    let runc = json!({"spec": {"containerRuntimeConfig": {"defaultRuntime": "runc"}}});
    put(&engines, "runc", runc).await;
    let both = format!("True {swap}::runc: transition to default crun: ");
    wait_for_text(admin, kind, &both, &[]).await;
    put(&kubelets, "swap", json!({"spec": {"kubeletConfig": {"failSwapOn": true}}})).await;
    wait_for_text(admin, kind, "True runc: transition to default crun: ", &[]).await;
    engines.delete("runc", &DeleteParams::default()).await.unwrap();
    wait_for_text(admin, kind, "False AsExpected: ", &[]).await;

    let configurations = Api::<MachineConfiguration>::all(admin.clone());
    let images = |version: &str| {
        let manual = json!({"mode": "OCPVersion", "ocpVersion": version});
        let enforcement = json!({"mode": "Manual", "manual": manual});
        json!({"spec": {"managementState": "Managed", "bootImageSkewEnforcement": enforcement}})
    };
    put(&configurations, "cluster", images("4.12.0")).await;
    let old = "False ClusterBootImageSkewError: Upgrades have been disabled because ";
    wait_for_text(admin, "Upgradeable", old, &["4.12.0"]).await;
    put(&configurations, "cluster", images("4.13.0")).await;
    wait_for_text(admin, "Upgradeable", "True AsExpected: ", &[]).await;
}

fn workload(name: &str) -> Value {
    let labels = json!({"k8s-app": name});
    let container = json!({"name": name, "image": "registry.test/mco:1"});
    json!({"spec": {"selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
}

async fn stopped_processes(admin: &Client) {
    let name = "machine-config-controller";
    let deployments = Api::<Deployment>::namespaced(admin.clone(), label::NAMESPACE);
    put(&deployments, name, workload(name)).await;
    let status = |ready: i32| {
        json!({"observedGeneration": 1, "replicas": 1, "readyReplicas": ready,
            "availableReplicas": ready})
    };
    merge_status(&deployments, name, status(0)).await;
    let parts = ["none of the 1 pod of the Deployment openshift-machine-config-operator/machine-"];
    let stopped = "False MachineConfigControllerNotRunning: Cluster not available for [";
    wait_for_text(admin, "Available", stopped, &parts).await;
    merge_status(&deployments, name, status(1)).await;
    wait_for_text(admin, "Available", "True AsExpected: ", &[]).await;

    let name = "machine-config-server";
    let daemon_sets = Api::<DaemonSet>::namespaced(admin.clone(), label::NAMESPACE);
    put(&daemon_sets, name, workload(name)).await;
    let status = |ready: i32| {
        json!({"observedGeneration": 1, "currentNumberScheduled": 3, "numberMisscheduled": 0,
            "desiredNumberScheduled": 3, "numberReady": ready})
    };
    merge_status(&daemon_sets, name, status(0)).await;
    let stopped = "False MachineConfigServerNotRunning: Cluster not available for [";
    wait_for_text(admin, "Available", stopped, &["none of the 3 pods"]).await;
    merge_status(&daemon_sets, name, status(1)).await;
    wait_for_text(admin, "Available", "True AsExpected: ", &[]).await;
}

async fn wait_for_event(admin: &Client, reason: &str, text: &str) {
    let events = Api::<Event>::namespaced(admin.clone(), label::NAMESPACE);
    let found = object_wait::find(events, |event| {
        let has_reason = event.reason.as_deref() == Some(reason);
        (has_reason && event.note.as_deref().unwrap_or_default().contains(text)).then_some(())
    });
    found.await.unwrap_or_else(|| panic!("an event {reason} about {text}"));
}

/// The titles that `kubectl get` prints: the names of the columns in capitals.
async fn columns(admin: &Client) {
    let ours = "machineconfiguration.openshift.io";
    let rows = [
        (
            "config.openshift.io",
            "clusteroperators",
            "NAME VERSION AVAILABLE PROGRESSING DEGRADED SINCE MESSAGE",
        ),
        (ours, "machineconfigs", "NAME GENERATEDBYCONTROLLER IGNITIONVERSION AGE"),
        (
            ours,
            "machineconfigpools",
            "NAME CONFIG UPDATED UPDATING DEGRADED MACHINECOUNT READYMACHINECOUNT \
             UPDATEDMACHINECOUNT DEGRADEDMACHINECOUNT AGE",
        ),
        (ours, "machineconfignodes", "NAME POOLNAME DESIREDCONFIG CURRENTCONFIG UPDATED AGE"),
        (ours, "kubeletconfigs", "NAME AGE"),
        (ours, "containerruntimeconfigs", "NAME AGE"),
        (ours, "controllerconfigs", "NAME AGE"),
    ];
    for (group, plural, expected) in rows {
        let request = http::Request::get(format!("/apis/{group}/v1/{plural}"))
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new());
        let table: Value = admin.request(request.unwrap()).await.unwrap();
        let columns = table["columnDefinitions"].as_array().unwrap().iter();
        let shown = columns.filter(|column| column["priority"] == 0);
        let titles: Vec<String> =
            shown.map(|column| column["name"].as_str().unwrap().to_uppercase()).collect();
        assert_eq!(titles.join(" "), expected, "{plural}");
    }
    let request = http::Request::get("/apis/config.openshift.io/v1/clusteroperators")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new());
    let table: Value = admin.request(request.unwrap()).await.unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(
        cells[..5],
        json!(["machine-config", "4.20.0", "True", "False", "False"]).as_array().unwrap()[..]
    );
}

/// Interval at which a controller renews its Lease.
const RENEWAL: Duration = Duration::from_secs(2);

// covers: O28
#[tokio::test]
async fn a_dead_controller_makes_the_cluster_unavailable_on_a_real_kube_apiserver() {
    let Some((server, Clients { admin, operator })) = real().await else { return };
    let namespaces = Api::<Namespace>::all(admin.clone());
    put(&namespaces, label::NAMESPACE, json!({})).await;
    let leases = Api::<Lease>::namespaced(admin.clone(), label::NAMESPACE);
    let name = "machine-config-controller";
    let lease = |transitions: i32| {
        json!({"spec": {"holderIdentity": "c_1", "leaseDurationSeconds": 15,
            "leaseTransitions": transitions}})
    };
    // A controller that is alive renews its Lease.
    let renew = async {
        for transitions in 0.. {
            put(&leases, name, lease(transitions)).await;
            tokio::time::sleep(RENEWAL).await;
        }
    };
    tokio::pin!(renew);
    let running = Operator::start(&operator, &config("v1", "4.20.0"));
    tokio::select! {
        () = &mut renew => {}
        _ = wait_for_text(&admin, "Available", "True AsExpected: ", &[]) => {}
    }
    let silent = "False MachineConfigControllerNotRunning: Cluster not available for [";
    wait_for_text(&admin, "Available", silent, &["c_1 has not renewed the Lease"]).await;
    tokio::select! {
        () = &mut renew => {}
        _ = wait_for_text(&admin, "Available", "True AsExpected: ", &[]) => {}
    }
    running.stop().await;
    drop(server);
}
