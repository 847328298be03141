//! Tests of drains: pods, budgets, and the daemon's requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        events::v1::Event,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    client::Body,
};
use mco_api::{
    MachineConfigNode, MachineConfigPool,
    annotation::{self, DrainRecord},
};
use mco_cluster::Shutdown;
use mco_controller::Metrics;
use mco_testkit::PATIENCE;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    fleet::Fleet,
    server::{Server, on_both},
};

on_both! {
    a_node_is_cordoned_drained_and_uncordoned,
    a_budget_blocks_a_drain_until_it_allows_the_eviction,
    a_blocked_drain_records_pod_owner_budget_and_start,
    a_new_leader_knows_the_start_of_a_drain,
    an_unknown_request_is_reported_and_the_next_one_acknowledged,
    an_uncordoned_node_is_cordoned_again_and_its_drain_restarts,
    a_lost_cordon_is_retried_before_any_eviction,
    a_pool_can_set_its_drain_timeouts,
    the_drain_error_of_a_deleted_node_is_cleared,
    evictions_honour_retry_after,
    two_hundred_concurrent_drains_stay_within_the_eviction_limit,
    an_eviction_in_flight_at_shutdown_completes,
}

fn pod(name: &str, app: &str, owner: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "labels": {"app": app},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": app,
                "uid": "1", "controller": true}],
        },
        "spec": {"nodeName": "n0", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

/// Creates the running pod `web` of a `ReplicaSet` on `n0`.
pub(crate) async fn loose_pod(fleet: &Fleet) {
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let web = pod("web", "web", "ReplicaSet");
    api.create(&PostParams::default(), &web).await.unwrap();
    // A pod that is not running can always be evicted, regardless of its budget.
    let runs = Patch::Merge(json!({"status": web.status}));
    api.patch_status("web", &PatchParams::default(), &runs).await.unwrap();
}

/// Creates the pod `web` on `n0`, and a budget that never allows its eviction.
pub(crate) async fn stuck(fleet: &Fleet) -> Api<PodDisruptionBudget> {
    loose_pod(fleet).await;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }))
    .unwrap();
    let budgets = Api::<PodDisruptionBudget>::namespaced(fleet.client.clone(), "default");
    let made = budgets.create(&PostParams::default(), &budget).await.unwrap();
    // The real API server leaves the budget's status to a controller, which does not run here.
    let counted = Patch::Merge(json!({"status": {
        "observedGeneration": made.metadata.generation, "disruptionsAllowed": 0,
        "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    }}));
    budgets.patch_status("keep", &PatchParams::default(), &counted).await.unwrap();
    budgets
}

pub(crate) async fn ask(fleet: &Fleet, request: &str) {
    let annotations = json!({annotation::DESIRED_DRAIN.name(): request});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": annotations}})).await;
}

pub(crate) async fn answered(fleet: &Fleet, request: &str) -> Node {
    let answered = |node: &Node| {
        let answer = node.annotations().get(annotation::LAST_APPLIED_DRAIN.name());
        answer.map(String::as_str) == Some(request)
    };
    fleet.wait::<Node>("n0", "the request is acknowledged", answered).await
}

pub(crate) fn cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

pub(crate) async fn names(fleet: &Fleet) -> Vec<String> {
    let pods = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let mut names: Vec<_> = pods
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    names
}

/// Returns true if the drain error of `n0` is set.
fn is_counted(registry: &Registry) -> bool {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text.contains("mcc_drain_err{node=\"n0\"} 1")
}

/// Returns the messages of all events with this reason.
async fn events(fleet: &Fleet, reason: &str) -> Vec<String> {
    let events = Api::<Event>::all(fleet.client.clone());
    let events = events.list(&ListParams::default()).await.unwrap();
    let said = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    said.filter_map(|event| event.note).collect()
}

// covers: DRN-1, DRN-2, DRN-4
async fn a_node_is_cordoned_drained_and_uncordoned(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    for pod in [pod("web", "web", "ReplicaSet"), pod("agent", "agent", "DaemonSet")] {
        api.create(&PostParams::default(), &pod).await.unwrap();
    }
    ask(&fleet, "drain-rendered-worker-1").await;
    let node = answered(&fleet, "drain-rendered-worker-1").await;
    assert!(cordoned(&node));
    assert_eq!(names(&fleet).await, ["agent"], "pods of a DaemonSet stay");

    ask(&fleet, "uncordon-rendered-worker-1").await;
    let node = answered(&fleet, "uncordon-rendered-worker-1").await;
    assert!(!cordoned(&node));
    fleet.stop().await;
}

// covers: DRN-5
async fn a_budget_blocks_a_drain_until_it_allows_the_eviction(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let budgets = stuck(&fleet).await;
    ask(&fleet, "drain-rendered-worker-1").await;
    assert_eq!(
        fleet.event("DrainBlocked").await,
        "node n0: this drain cannot finish: pod default/web: PodDisruptionBudget default/keep \
         requires 1 of 1 pods and never allows an eviction; add a replica or lower the budget",
    );
    assert_eq!(names(&fleet).await, ["web"]);
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert!(cordoned(&node), "no pod can be scheduled during evictions");
    assert!(!node.annotations().contains_key(annotation::LAST_APPLIED_DRAIN.name()));

    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    answered(&fleet, "drain-rendered-worker-1").await;
    assert_eq!(names(&fleet).await, [""; 0]);
    fleet.stop().await;
}

/// Waits until `holds` is true for the drain record of the node.
pub(crate) async fn record(
    fleet: &Fleet,
    what: &str,
    holds: impl Fn(&DrainRecord) -> bool,
) -> DrainRecord {
    let read = |node: &Node| annotation::DRAIN_RECORD.get(node.annotations()).unwrap();
    let found = |node: &Node| read(node).is_some_and(|record| holds(&record));
    let node = fleet.wait::<Node>("n0", what, found).await;
    read(&node).unwrap()
}

// covers: DRN-10
async fn a_blocked_drain_records_pod_owner_budget_and_start(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let budgets = stuck(&fleet).await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let record = record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    let [blocker] = record.blockers.as_slice() else { panic!("{record:?}") };
    assert_eq!((blocker.pod.as_str(), blocker.owner.as_str()), ("default/web", "ReplicaSet web"));
    assert!(
        blocker.why.starts_with("PodDisruptionBudget default/keep requires 1 of 1 pods"),
        "{blocker}"
    );
    let drained = |node: &MachineConfigNode, status: &str, text: &str| {
        let conditions = node.status.clone().unwrap_or_default().conditions;
        conditions
            .iter()
            .any(|c| c.type_ == "Drained" && c.status == status && c.message.contains(text))
    };
    let text = blocker.to_string();
    fleet
        .wait::<MachineConfigNode>("n0", "the condition is set", |node| {
            drained(node, "Unknown", &text)
        })
        .await;

    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    let node = answered(&fleet, "drain-rendered-worker-1").await;
    assert!(!node.annotations().contains_key(annotation::DRAIN_RECORD.name()));
    fleet
        .wait::<MachineConfigNode>("n0", "the condition is set", |node| {
            drained(node, "True", "complete")
        })
        .await;
    ask(&fleet, "uncordon-rendered-worker-1").await;
    fleet
        .wait::<MachineConfigNode>("n0", "the node is uncordoned", |node| {
            let conditions = node.status.clone().unwrap_or_default().conditions;
            conditions.iter().any(|c| c.type_ == "Uncordoned" && c.status == "True")
        })
        .await;
    fleet.stop().await;
}

// covers: DRN-6, DRN-7
async fn a_new_leader_knows_the_start_of_a_drain(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let budgets = stuck(&fleet).await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let mut known = record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    let mut registry = Registry::default();
    fleet.config.metrics = Metrics::register(&mut registry);
    fleet.config.pace.attempt_timeout = Duration::from_millis(50);
    assert!(!is_counted(&registry));

    fleet.pause().await;
    known.since = serde_json::from_value(json!("2020-01-01T00:00:00Z")).unwrap();
    let old = json!({annotation::DRAIN_RECORD.name(): known.to_string()});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": old}})).await;
    fleet.resume();

    let text = fleet.event("DrainFailed").await;
    assert_eq!(text, "node n0: drain exceeded timeout: 1h0m0s. Will continue to retry.");
    let text = fleet.event("DrainThresholdExceeded").await;
    assert!(
        text.contains("pod default/web of ReplicaSet web: PodDisruptionBudget default/keep"),
        "{text}"
    );
    let after = record(&fleet, "the attempt has failed", |record| record.attempts > 0).await;
    assert_eq!((&after.since, &after.blockers), (&known.since, &known.blockers));
    assert!(is_counted(&registry));

    // A changed budget does not end the pause of a drain; an uncordon does, and starts the drain
    // anew.
    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    fleet.patch::<Node>("n0", json!({"spec": {"unschedulable": false}})).await;
    answered(&fleet, "drain-rendered-worker-1").await;
    assert!(!is_counted(&registry));
    fleet.stop().await;
}

// covers: DRN-3
async fn an_unknown_request_is_reported_and_the_next_one_acknowledged(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    ask(&fleet, "reboot-rendered-worker-1").await;
    let text = fleet.event("DrainRequestUnknown").await;
    assert!(text.starts_with("node n0: non-recognized drain verb detected reboot;"), "{text}");
    assert!(text.contains("machineconfiguration.openshift.io/desiredDrain"), "{text}");
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert!(!cordoned(&node));
    assert!(!node.annotations().contains_key(annotation::LAST_APPLIED_DRAIN.name()));
    ask(&fleet, "drain-rendered-worker-1").await;
    answered(&fleet, "drain-rendered-worker-1").await;
    fleet.stop().await;
}

// covers: DRN-8
async fn an_uncordoned_node_is_cordoned_again_and_its_drain_restarts(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    let budgets = stuck(&fleet).await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let before = record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    // The record is dropped together with the cordon.
    let mut old = before.clone();
    old.since = serde_json::from_value(json!("2020-01-01T00:00:00Z")).unwrap();
    let old = json!({annotation::DRAIN_RECORD.name(): old.to_string()});
    let open = json!({"metadata": {"annotations": old}, "spec": {"unschedulable": null}});
    fleet.patch::<Node>("n0", open).await;
    let after = record(&fleet, "the drain starts anew", |record| {
        record.since >= before.since && !record.blockers.is_empty()
    });
    let after = after.await;
    assert_eq!(after.attempts, 0, "{after:?}");
    let node = fleet.all::<Node>().get("n0").await.unwrap();
    assert!(cordoned(&node));
    assert!(!node.annotations().contains_key(annotation::LAST_APPLIED_DRAIN.name()));
    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    assert!(cordoned(&answered(&fleet, "drain-rendered-worker-1").await));
    fleet.stop().await;
}

// covers: DRN-9
async fn a_lost_cordon_is_retried_before_any_eviction(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let web = pod("web", "web", "ReplicaSet");
    api.create(&PostParams::default(), &web).await.unwrap();
    fleet.pause().await;
    // The first writes to the node are dry runs: the server accepts them and stores nothing.
    let (lost, evictions) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (swallow, seen) = (lost.clone(), evictions.clone());
    let client = fleet.server.altered(move |mut request| {
        let path = request.uri().path().to_owned();
        if request.method() == http::Method::PATCH
            && path.ends_with("/nodes/n0")
            && swallow.fetch_add(1, Ordering::SeqCst) < 3
        {
            assert_eq!(seen.load(Ordering::SeqCst), 0, "no eviction before the cordon");
            *request.uri_mut() = format!("{path}?dryRun=All").parse().unwrap();
        }
        if path.ends_with("/eviction") {
            seen.fetch_add(1, Ordering::SeqCst);
        }
        request
    });
    let client = client.await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let shutdown = Shutdown::new();
    let running = tokio::spawn(mco_controller::run(fleet.config.clone(), client, shutdown.clone()));
    assert!(cordoned(&answered(&fleet, "drain-rendered-worker-1").await));
    assert_eq!(names(&fleet).await, [""; 0]);
    assert!(lost.load(Ordering::SeqCst) > 3);
    shutdown.request();
    running.await.unwrap();
}

// covers: DRN-7
async fn a_pool_can_set_its_drain_timeouts(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let budgets = stuck(&fleet).await;
    // Controllers that start afterwards see the annotations of the pool.
    fleet.pause().await;
    let annotations = json!({
        annotation::DRAIN_TIMEOUT.name(): "2h",
        annotation::DRAIN_ATTEMPT_TIMEOUT.name(): "for a while",
    });
    fleet
        .patch::<MachineConfigPool>("worker", json!({"metadata": {"annotations": annotations}}))
        .await;
    ask(&fleet, "drain-rendered-worker-1").await;
    fleet.resume();
    let text = fleet.event("DrainTimeoutInvalid").await;
    assert!(
        text.starts_with(
            "pool worker: annotation machineconfiguration.openshift.io/drain-attempt-timeout is \
             \"for a while\": "
        ),
        "{text}"
    );
    let mut known = record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;

    // An hour and a half is slow, but within the time limit.
    fleet.pause().await;
    fleet.config.pace.attempt_timeout = Duration::from_millis(50);
    let begun = known.since.clone();
    let ago = |minutes: u64| {
        let Time(then) = begun.clone();
        Time(then - Duration::from_secs(minutes * 60))
    };
    known.since = ago(90);
    let old = json!({annotation::DRAIN_RECORD.name(): known.to_string()});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": old}})).await;
    fleet.resume();
    let text = fleet.event("DrainThresholdExceeded").await;
    // Ninety minutes, and the seconds that this test took so far.
    let is_true = ["more than 90 minutes.", "more than 1h30m"].iter().any(|age| text.contains(age));
    assert!(is_true && text.contains("Waiting 5 minutes then retrying"), "{text}");
    assert_eq!(events(&fleet, "DrainFailed").await, [""; 0]);

    fleet.pause().await;
    known.since = ago(121);
    let old = json!({annotation::DRAIN_RECORD.name(): known.to_string()});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": old}})).await;
    fleet.resume();
    let text = fleet.event("DrainFailed").await;
    assert_eq!(text, "node n0: drain exceeded timeout: 2h0m0s. Will continue to retry.");
    drop(budgets);
    fleet.stop().await;
}

// covers: MET-3
async fn the_drain_error_of_a_deleted_node_is_cleared(server: Server) {
    let mut fleet = Fleet::on(server, 2).await;
    stuck(&fleet).await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let mut known = record(&fleet, "it has a blocker", |record| !record.blockers.is_empty()).await;
    fleet.pause().await;
    let mut registry = Registry::default();
    fleet.config.metrics = Metrics::register(&mut registry);
    known.since = serde_json::from_value(json!("2020-01-01T00:00:00Z")).unwrap();
    let old = json!({annotation::DRAIN_RECORD.name(): known.to_string()});
    fleet.patch::<Node>("n0", json!({"metadata": {"annotations": old}})).await;
    fleet.resume();
    fleet.event("DrainFailed").await;
    assert!(is_counted(&registry));
    fleet.all::<Node>().delete("n0", &DeleteParams::default()).await.unwrap();
    // Once the pool counts one node less, the cache has dropped the node.
    fleet.wait_for_pool("it has one node", |status| status.machine_count == 1).await;
    assert!(!is_counted(&registry));
    fleet.stop().await;
}

// covers: DRN-5
async fn evictions_honour_retry_after(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    // The real server itself sends a Retry-After of ten seconds, because no controller has computed
    // the budget's status; the embedded server computes it at once, and so refuses without a
    // Retry-After.
    let budgets = stuck(&fleet).await;
    let news = Patch::Merge(json!({"spec": {"maxUnavailable": 0, "minAvailable": null}}));
    budgets.patch("keep", &PatchParams::default(), &news).await.unwrap();
    fleet.pause().await;
    let (noted, mut asked) = mpsc::unbounded_channel();
    let client = fleet.server.watched(move |request| {
        if request.uri().path().ends_with("/pods/web/eviction") {
            // The receiver is dropped after enough requests.
            let _ = noted.send(Instant::now());
        }
    });
    let client = client.await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let (shutdown, mut config) = (Shutdown::new(), fleet.config.clone());
    config.pace.retry_interval = Duration::from_millis(200);
    let running = tokio::spawn(mco_controller::run(config, client, shutdown.clone()));
    let pause = match fleet.server {
        Server::Embedded(_) => Duration::from_millis(200),
        Server::Real { .. } => Duration::from_secs(10),
    };
    let mut again = async || {
        let heard = tokio::time::timeout(PATIENCE, asked.recv()).await;
        heard.expect("an eviction is requested").unwrap()
    };
    let (first, second) = (again().await, again().await);
    assert!(second.duration_since(first) >= pause, "{:?}", second.duration_since(first));
    shutdown.request();
    running.await.unwrap();
}

/// Blocks evictions until no further eviction requests can be expected.
struct Gate {
    nodes: usize,
    limit: usize,
    asked: watch::Sender<Asked>,
}

/// Requests that were seen.
#[derive(Default)]
struct Asked {
    watches: usize,
    evictions: usize,
    /// Number of evictions at the moment the gate opened.
    held: Option<usize>,
}

impl Gate {
    async fn pass(&self, address: http::Uri) {
        let (path, query) = (address.path(), address.query().unwrap_or_default());
        let is_watch = path == "/api/v1/pods" && query.contains("watch=true");
        let is_eviction = path.ends_with("/eviction");
        if !is_watch && !is_eviction {
            return;
        }
        self.asked.send_modify(|asked| {
            asked.watches += usize::from(is_watch);
            asked.evictions += usize::from(is_eviction);
            // A drain that watches its pods has evictions to request.
            let all_ask = asked.watches >= self.nodes && asked.evictions >= self.limit;
            if all_ask && asked.held.is_none() {
                asked.held = Some(asked.evictions);
            }
        });
        if is_eviction {
            let mut asked = self.asked.subscribe();
            asked.wait_for(|asked| asked.held.is_some()).await.expect("the gate is there");
        }
    }
}

// covers: DRN-11
async fn two_hundred_concurrent_drains_stay_within_the_eviction_limit(server: Server) {
    const NODES: usize = 200;
    const LIMIT: usize = 64;
    let mut fleet = Fleet::on(server, NODES).await;
    fleet.pause().await;
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    let (fleet, api) = (&fleet, &api);
    let prepared = stream::iter(0..NODES).map(async |number| {
        let node = format!("n{number}");
        let mut pod = pod(&format!("web{number}"), "web", "ReplicaSet");
        pod.spec.as_mut().unwrap().node_name = Some(node.clone());
        api.create(&PostParams::default(), &pod).await.unwrap();
        let request = json!({annotation::DESIRED_DRAIN.name(): "drain-rendered-worker-1"});
        fleet.patch::<Node>(&node, json!({"metadata": {"annotations": request}})).await;
    });
    prepared.buffer_unordered(16).collect::<()>().await;
    let (nodes, limit) = (NODES, LIMIT);
    let gate = Arc::new(Gate { nodes, limit, asked: watch::Sender::default() });
    let (mut asked, passed) = (gate.asked.subscribe(), gate.clone());
    let client = fleet.server.gated(move |request: http::Request<Body>| {
        let gate = passed.clone();
        async move {
            gate.pass(request.uri().clone()).await;
            request
        }
    });
    let (client, shutdown) = (client.await, Shutdown::new());
    let running = tokio::spawn(mco_controller::run(fleet.config.clone(), client, shutdown.clone()));
    let held = asked.wait_for(|asked| asked.held.is_some());
    let held = tokio::time::timeout(PATIENCE, held)
        .await
        .expect("all drains request evictions")
        .unwrap()
        .held;
    assert_eq!(held, Some(LIMIT), "the others wait for a permit");
    let answer = annotation::LAST_APPLIED_DRAIN.name();
    for number in 0..NODES {
        fleet
            .wait::<Node>(&format!("n{number}"), "it is drained", |node| {
                node.annotations().contains_key(answer)
            })
            .await;
    }
    assert_eq!(names(fleet).await, [""; 0]);
    shutdown.request();
    running.await.unwrap();
}

// covers: DRN-5
async fn an_eviction_in_flight_at_shutdown_completes(server: Server) {
    let mut fleet = Fleet::on(server, 1).await;
    let api = Api::<Pod>::namespaced(fleet.client.clone(), "default");
    api.create(&PostParams::default(), &pod("web", "web", "ReplicaSet")).await.unwrap();
    fleet.pause().await;
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let client = fleet.server.gated(move |request: http::Request<Body>| {
        let stop = stop.clone();
        async move {
            if request.uri().path().ends_with("/pods/web/eviction") {
                stop.request();
                // Lets the other tasks see the shutdown meanwhile.
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            request
        }
    });
    let client = client.await;
    ask(&fleet, "drain-rendered-worker-1").await;
    let running = mco_controller::run(fleet.config.clone(), client, shutdown);
    tokio::time::timeout(PATIENCE, running).await.expect("the controllers stop");
    assert_eq!(names(&fleet).await, [""; 0]);
}
