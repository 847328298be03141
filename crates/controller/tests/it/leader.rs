//! Tests of leader election: of two controllers, only the leader writes.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Api, ResourceExt as _};
use mco_api::{annotation, label};
use mco_cluster::{
    Shutdown,
    lease::{LeadershipEnd, Timings},
};
use mco_controller::{Leader, NAME};
use mco_testkit::{PATIENCE, object_wait};
use tokio::task::JoinHandle;

use crate::{
    fleet::Fleet,
    server::{Server, Writes, on_both},
};

on_both! {
    of_two_controllers_only_the_leader_writes,
}

/// Longer than any wait, so that no process loses the Lease on a busy machine, and none takes it
/// because it expired.
const TIMINGS: Timings = Timings {
    lease: PATIENCE.saturating_mul(3),
    renew: PATIENCE.saturating_mul(2),
    retry: Duration::from_millis(200),
};

/// Controllers whose writes are counted.
pub(crate) struct Controller {
    identity: &'static str,
    pub(crate) writes: Writes,
    shutdown: Shutdown,
    running: JoinHandle<LeadershipEnd>,
}

impl Controller {
    pub(crate) async fn start(fleet: &Fleet, identity: &'static str) -> Self {
        let (client, writes) = fleet.server.metered().await;
        let mut config = fleet.config.clone();
        config.leader = Some(Leader {
            namespace: label::NAMESPACE.to_owned(),
            identity: identity.to_owned(),
            timings: TIMINGS,
        });
        let shutdown = Shutdown::new();
        let running = tokio::spawn(mco_controller::run(config, client, shutdown.clone()));
        Self { identity, writes, shutdown, running }
    }

    /// Waits until these controllers lead.
    pub(crate) async fn leads(&self, fleet: &Fleet) {
        let leases = Api::<Lease>::namespaced(fleet.client.clone(), label::NAMESPACE);
        let holds = |lease: Option<&Lease>| {
            let spec = lease.and_then(|lease| lease.spec.as_ref());
            spec.is_some_and(|spec| spec.holder_identity.as_deref() == Some(self.identity))
        };
        object_wait::wait_until(leases, NAME, "a new leader", holds).await.unwrap();
    }

    /// Stops the controllers; returns their writes.
    pub(crate) async fn stop(self) -> Writes {
        self.shutdown.request();
        assert_eq!(self.running.await.unwrap(), LeadershipEnd::Released);
        self.writes
    }
}

// covers: LE-1, PROC-3
async fn of_two_controllers_only_the_leader_writes(server: Server) {
    let mut fleet = Fleet::on(server, 3).await;
    fleet.pause().await;
    let first = Controller::start(&fleet, "first").await;
    first.leads(&fleet).await;
    let second = Controller::start(&fleet, "second").await;

    let old = fleet.rendered().await;
    fleet.apply_config("50-motd", "/etc/motd").await;
    let new = fleet.rendered_anew(&old).await;
    let node = fleet.wait_for_start(&new).await;
    assert!(!first.writes.all().is_empty());
    assert_eq!(second.writes.all(), [""; 0], "the second only waits");

    // At shutdown the first releases the Lease, so the second does not wait until it expires.
    let first = first.stop().await;
    let written = first.all().len();
    second.leads(&fleet).await;
    fleet.write_daemon_state(&node, "Done", &new, "").await;
    for _ in 1..3 {
        let node = fleet.wait_for_start(&new).await;
        let known = fleet.all::<Node>().get(&node).await.unwrap();
        assert_eq!(known.annotations().get(annotation::DESIRED_CONFIG.name()), Some(&new));
        fleet.write_daemon_state(&node, "Done", &new, "").await;
    }
    fleet.wait_for_update(&new).await;
    assert_eq!(first.all().len(), written, "the first does not lead any more");
    assert!(!second.writes.all().is_empty());
    second.stop().await;
}
