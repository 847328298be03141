//! Changes that happen between two requests of the controllers, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    client::Body,
};
use mco_api::{MachineConfigPool, annotation, label};
use mco_cluster::{
    Shutdown, client,
    lease::{LeadershipEnd, Timings},
};
use mco_controller::Leader;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    drain::{answered, ask, cordoned, loose_pod, record, stuck},
    fleet::Fleet,
};

/// Time in which all watches deliver a change. The clock of all tests here is paused: a sleep ends when
/// no task has anything left to do, and no real time passes.
const SETTLED: Duration = Duration::from_secs(1);

/// Time after which no work of the start is left in the controller's queues.
const IDLE: Duration = Duration::from_mins(2);

/// A request of the controller at which another client uncordons the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The list of the pods to evict. The controller knows of the change before it acknowledges.
    PodList,
    /// The acknowledgement itself.
    Acknowledgement,
}

impl Moment {
    fn is_it(self, request: &Request<Body>, body: &[u8]) -> bool {
        let path = request.uri().path();
        match self {
            Self::PodList => request.method() == Method::GET && path == "/api/v1/pods",
            Self::Acknowledgement => {
                let acknowledges =
                    format!("\"{}\":\"drain-", annotation::LAST_APPLIED_DRAIN.name());
                request.method() == Method::PATCH
                    && path == "/api/v1/nodes/n0"
                    && String::from_utf8_lossy(body).contains(&acknowledges)
            }
        }
    }
}

async fn uncordon(client: Client) {
    let nodes: Api<Node> = Api::all(client);
    let patch = Patch::Merge(json!({"spec": {"unschedulable": null}}));
    nodes.patch("n0", &PatchParams::default(), &patch).await.unwrap();
    sleep(SETTLED).await;
}

async fn drain_with_an_uncordon_at(moment: Moment) {
    let mut fleet = Fleet::start(1).await;
    fleet.pause().await;
    let (direct, is_armed) = (fleet.client.clone(), Arc::new(AtomicBool::new(true)));
    let armed = is_armed.clone();
    let gate = move |request: Request<Body>| {
        let (direct, armed) = (direct.clone(), armed.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let request = Request::from_parts(parts, Body::from(body.to_vec()));
            if moment.is_it(&request, &body) && armed.swap(false, Ordering::Relaxed) {
                uncordon(direct).await;
            }
            request
        }
    };
    let client = fleet.server.gated(gate).await;
    let shutdown = Shutdown::new();
    let running = tokio::spawn(mco_controller::run(fleet.config.clone(), client, shutdown.clone()));
    ask(&fleet, "drain-x").await;
    let node = answered(&fleet, "drain-x").await;
    assert!(!is_armed.load(Ordering::Relaxed), "{moment:?} did not happen");
    assert!(cordoned(&node), "{moment:?}: the drain of an open node was acknowledged");
    shutdown.request();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_not_acknowledged_after_the_node_was_uncordoned() {
    drain_with_an_uncordon_at(Moment::PodList).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_not_acknowledged_while_the_node_is_being_uncordoned() {
    drain_with_an_uncordon_at(Moment::Acknowledgement).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_eviction_blocks_the_drain() {
    let fleet = Fleet::start(1).await;
    stuck(&fleet).await;
    ask(&fleet, "drain-x").await;
    let blocked = |record: &mco_api::annotation::DrainRecord| !record.blockers.is_empty();
    let record = record(&fleet, "has a blocker", blocked).await;
    assert_eq!(record.attempts, 0, "the refusal was noticed only when the attempt timed out");
    fleet.stop().await;
}

/// After a restore of etcd, the status is that of the backup, and nothing else changes that would make
/// the controller look at the pool.
#[tokio::test(start_paused = true)]
async fn a_status_that_changed_in_an_idle_cluster_is_written_again() {
    let fleet = Fleet::start(2).await;
    fleet.wait_for_pool("two machines", |status| status.machine_count == 2).await;
    sleep(IDLE).await;
    let pools: Api<MachineConfigPool> = Api::all(fleet.client.clone());
    let old = Patch::Merge(json!({"status": {"machineCount": 7}}));
    pools.patch_status("worker", &PatchParams::default(), &old).await.unwrap();
    fleet.wait_for_pool("two machines again", |status| status.machine_count == 2).await;
    fleet.stop().await;
}

/// An eviction that is on its way when the controller loses its lease is not carried out: another
/// controller may lead by then.
#[tokio::test(start_paused = true)]
async fn an_eviction_in_flight_ends_with_the_lease() {
    let mut fleet = Fleet::start(1).await;
    fleet.pause().await;
    loose_pod(&fleet).await;
    let is_evicting = Arc::new(AtomicBool::new(false));
    let evicting = is_evicting.clone();
    let gate = move |request: Request<Body>| {
        let evicting = evicting.clone();
        async move {
            let path = request.uri().path();
            if path.contains("/leases/") && evicting.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            if path.ends_with("/eviction") {
                evicting.store(true, Ordering::Relaxed);
                sleep(Duration::from_secs(15)).await;
            }
            request
        }
    };
    let gated = fleet.server.gated(gate).await;
    let client = client::over(client::service(gated), "default", &client::Options::default());
    let mut config = fleet.config.clone();
    config.leader = Some(Leader {
        namespace: label::NAMESPACE.to_owned(),
        identity: "first".to_owned(),
        timings: Timings::new(
            Duration::from_secs(15),
            Duration::from_secs(10),
            Duration::from_secs(2),
        )
        .unwrap(),
    });
    let running = tokio::spawn(mco_controller::run(config, client, Shutdown::new()));
    ask(&fleet, "drain-x").await;
    assert_eq!(running.await.unwrap(), LeadershipEnd::Lost);
    assert!(is_evicting.load(Ordering::Relaxed));
    sleep(Duration::from_mins(1)).await;
    let pods: Api<Pod> = Api::namespaced(fleet.client.clone(), "default");
    assert!(
        pods.get_opt("web").await.unwrap().is_some(),
        "it was evicted after the lease was lost"
    );
}
