//! The controllers on an embedded API server, with nodes that have no machines.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use mco_apiserver::{ApiServer, Settings};
use serde_json::json;

use super::*;

/// Longest wait for a state that the controllers bring about.
const PATIENCE: Duration = Duration::from_mins(1);

struct Cluster {
    client: Client,
    shutdown: Shutdown,
    running: tokio::task::JoinHandle<()>,
}

impl Cluster {
    async fn start(nodes: &[&str]) -> Self {
        let client =
            Client::new(ApiServer::in_memory(Settings::default()).await.unwrap(), "default");
        let shutdown = Shutdown::new();
        let cache = Arc::new(Cache::<Node>::new(trim::metadata));
        let (api, kept, stop) = (Api::all(client.clone()), Arc::clone(&cache), shutdown.clone());
        tokio::spawn(async move { kept.run(api, Config::default(), &stop).await });
        let run = super::run(client.clone(), cache, Clock::System, shutdown.clone());
        let cluster = Self { client, shutdown, running: tokio::spawn(run) };
        for node in nodes {
            let object = json!({"metadata": {"name": node}});
            cluster.create::<Node>(object).await;
            cluster.set_ready(node, "True").await;
        }
        cluster
    }

    async fn set_ready(&self, node: &str, word: &str) {
        let now = jiff::Timestamp::now().to_string();
        let ready = json!({"type": "Ready", "status": word, "lastTransitionTime": now});
        let patch = Patch::Merge(json!({"status": {"conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}));
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch_status(node, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn create<K: Object + serde::de::DeserializeOwned>(&self, object: Value) {
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap();
    }

    /// Returns the objects of the namespace `default`, or of the cluster.
    fn api<K: Object>(&self) -> kube_api::Of<K> {
        kube_api::Of::new(&self.client)
    }

    async fn wait<K: Object>(&self, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K {
        let found = async {
            loop {
                match self.api::<K>().get_opt(name).await {
                    Some(object) if holds(&object) => return object,
                    _ => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no {what}"))
    }

    async fn pods(&self) -> Vec<PodView> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), "default");
        let pods = pods.list(&ListParams::default()).await.unwrap();
        pods.items.iter().map(PodView::of).collect()
    }

    /// Waits until the pods of the namespace are in a state.
    async fn wait_pods(&self, what: &str, holds: impl Fn(&[PodView]) -> bool) -> Vec<PodView> {
        let found = async {
            loop {
                let pods = self.pods().await;
                if holds(&pods) {
                    return pods;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await.ok();
        found.unwrap_or_else(|| panic!("no {what}"))
    }

    async fn stop(self) {
        self.shutdown.request();
        tokio::time::timeout(PATIENCE, self.running).await.unwrap().unwrap();
    }
}

/// Requests about kinds of both scopes.
mod kube_api {
    use super::*;

    pub(super) struct Of<K> {
        client: Client,
        kind: std::marker::PhantomData<K>,
    }

    impl<K: Object> Of<K> {
        pub(super) fn new(client: &Client) -> Self {
            Self { client: client.clone(), kind: std::marker::PhantomData }
        }

        fn path(name: &str) -> String {
            let is_of_cluster = ["Node", "Namespace"].contains(&&*K::kind(&()));
            K::url_path(&(), (!is_of_cluster).then_some("default")) + name
        }

        pub(super) async fn create(&self, _: &PostParams, object: &K) -> Result<(), kube::Error> {
            let request = http::Request::post(Self::path(""));
            let request = request.header("content-type", "application/json");
            let body = object.encode().unwrap();
            self.client.request::<Value>(request.body(body).unwrap()).await.map(drop)
        }

        pub(super) async fn get_opt(&self, name: &str) -> Option<K> {
            let request = http::Request::get(Self::path(&format!("/{name}")));
            let text = self.client.request_text(request.body(Vec::new()).unwrap()).await.ok()?;
            Some(K::decode(&text).unwrap())
        }
    }
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "one"}]}})
}

fn deployment(replicas: i32) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}}, "template": template()}})
}

fn is_rolled_out(deployment: &Deployment, replicas: i32) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    status.observed_generation == deployment.metadata.generation
        && status.updated_replicas == Some(replicas)
        && status.available_replicas == Some(replicas)
        && status.replicas == Some(replicas)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_runs_moves_and_ends() {
    let cluster = Cluster::start(&["w0", "w1"]).await;
    cluster.create::<Deployment>(deployment(2)).await;
    let service = json!({"metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.create::<Service>(service).await;
    cluster.wait::<Deployment>("web", "two replicas", |it| is_rolled_out(it, 2)).await;
    let nodes: Vec<_> = cluster.pods().await.into_iter().filter_map(|pod| pod.node).collect();
    assert!(nodes.len() == 2 && nodes.first() != nodes.last(), "they are spread: {nodes:?}");
    let has = |count: usize| {
        move |it: &Endpoints| {
            let subsets = it.subsets.iter().flatten();
            subsets.flat_map(|subset| subset.addresses.iter().flatten()).count() == count
        }
    };
    cluster.wait::<Endpoints>("web", "two addresses", has(2)).await;

    // The pod of a cordoned node that is evicted moves.
    let all = Api::<Node>::all(cluster.client.clone());
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    all.patch("w0", &PatchParams::default(), &cordon).await.unwrap();
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), "default");
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        if pod.spec.as_ref().unwrap().node_name.as_deref() == Some("w0") {
            pods.evict(&pod.name_any(), pod.uid().unwrap().as_str()).await.unwrap();
        }
    }
    let moved = |pods: &[PodView]| {
        let on = pods.iter().filter(|pod| pod.node.as_deref() == Some("w1") && pod.is_ready);
        pods.len() == 2 && on.count() == 2
    };
    cluster.wait_pods("both pods on w1", moved).await;

    // A new image is a new revision.
    let patch = json!({"spec": {"template": {"spec":
        {"containers": [{"name": "c", "image": "two"}]}}}});
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), "default");
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let is_second = |it: &Deployment| {
        let revision = it.annotations().get("deployment.kubernetes.io/revision");
        is_rolled_out(it, 2) && revision.is_some_and(|it| it == "2")
    };
    cluster.wait::<Deployment>("web", "the second revision", is_second).await;
    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    cluster.wait_pods("pods to be gone", <[PodView]>::is_empty).await;
    cluster.wait::<Endpoints>("web", "no address", has(0)).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_set_and_a_job_run() {
    let cluster = Cluster::start(&["w0", "w1"]).await;
    let set = json!({"metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template()}});
    cluster.create::<DaemonSet>(set).await;
    let ready = |count: i32| {
        move |it: &DaemonSet| {
            let status = it.status.clone().unwrap_or_default();
            status.number_ready == count && status.updated_number_scheduled == Some(count)
        }
    };
    cluster.wait::<DaemonSet>("agent", "two pods", ready(2)).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    nodes.delete("w1", &DeleteParams::default()).await.unwrap();
    cluster.wait::<DaemonSet>("agent", "one pod", ready(1)).await;
    let on_w0 = |pods: &[PodView]| pods.iter().all(|it| it.node.as_deref() == Some("w0"));
    cluster.wait_pods("only pods of w0", on_w0).await;

    let spec = json!({"containers": [{"name": "c", "image": "one"}], "restartPolicy": "Never"});
    let job = json!({"metadata": {"name": "once"},
        "spec": {"completions": 2, "template": {"spec": spec}}});
    cluster.create::<Job>(job).await;
    let is_complete = |it: &Job| {
        let status = it.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        status.succeeded == Some(2) && conditions.iter().any(|it| it.type_ == "Complete")
    };
    cluster.wait::<Job>("once", "a complete Job", is_complete).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_a_node_and_fails_with_it() {
    let cluster = Cluster::start(&[]).await;
    let pod = json!({"metadata": {"name": "p", "labels": {"app": "p"}},
        "spec": {"containers": [{"name": "c", "image": "one"}]}});
    cluster.create::<Pod>(pod).await;
    let budget = json!({"metadata": {"name": "p"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}});
    cluster.create::<PodDisruptionBudget>(budget).await;
    let is_pending = |it: &Pod| {
        let conditions = it.status.clone().and_then(|it| it.conditions).unwrap_or_default();
        conditions.iter().any(|it| it.reason.as_deref() == Some("Unschedulable"))
    };
    cluster.wait::<Pod>("p", "an unschedulable pod", is_pending).await;
    cluster.create::<Node>(json!({"metadata": {"name": "w0"}})).await;
    cluster.set_ready("w0", "True").await;
    cluster.wait::<Pod>("p", "a ready pod", |it| PodView::of(it).is_ready).await;
    let healthy = |count: i32| {
        move |it: &PodDisruptionBudget| {
            it.status.as_ref().is_some_and(|status| status.current_healthy.unwrap_or(0) == count)
        }
    };
    cluster.wait::<PodDisruptionBudget>("p", "a healthy pod", healthy(1)).await;
    cluster.set_ready("w0", "False").await;
    cluster.wait::<PodDisruptionBudget>("p", "no healthy pod", healthy(0)).await;
    cluster.set_ready("w0", "True").await;
    cluster.wait::<Pod>("p", "a ready pod again", |it| PodView::of(it).is_ready).await;
    cluster.stop().await;
}
