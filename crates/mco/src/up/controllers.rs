//! Scheduler, controllers and kubelets of the simulated machines, for what a user of `mco up` sees:
//! Deployments, ReplicaSets, DaemonSets, Jobs, Services, node lifecycle and pods of deleted nodes.
//!
//! Each pass reads the caches, plans with the pure functions of the submodules, and carries the plans
//! out. The result of a write is in the cache at once, so that the next pass does not repeat it.

mod act;
mod daemon_set;
mod deployment;
mod endpoints;
mod job;
mod node_lifecycle;
mod pod_status;
mod pods;
mod schedule;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet},
    batch::v1::Job,
    coordination::v1::Lease,
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Client, core::NamespaceResourceScope};
use mco_cluster::{
    Api, Cache, CallError, Clock, Object, Shutdown, cache::trim, report, watch::Config,
};
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet};
use tracing::warn;

use self::node_lifecycle::Heartbeats;
pub(crate) use self::pods::PodView;
use super::kubelet::LEASE_NAMESPACE;

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Longest pause between two passes: times that pass are no changes of objects.
const RESYNC: Duration = Duration::from_secs(10);

/// Pause while pods run that end by themselves.
const SHORT_RESYNC: Duration = Duration::from_millis(500);

/// The objects that the controllers read.
struct Controllers {
    client: Client,
    clock: Clock,
    nodes: Arc<Cache<Node>>,
    leases: Arc<Cache<Lease>>,
    pods: Arc<Cache<Pod>>,
    deployments: Arc<Cache<Deployment>>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    daemon_sets: Arc<Cache<DaemonSet>>,
    jobs: Arc<Cache<Job>>,
    services: Arc<Cache<Service>>,
    endpoints: Arc<Cache<Endpoints>>,
    slices: Arc<Cache<EndpointSlice>>,
    heartbeats: Heartbeats,
    /// The last written Endpoints and slices, by Service.
    written: BTreeMap<String, Value>,
}

/// Runs the controllers until shutdown. The caller keeps the cache `nodes` up to date.
pub(crate) async fn run(client: Client, nodes: Arc<Cache<Node>>, clock: Clock, shutdown: Shutdown) {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    nodes.on_change(move |_| notify.notify_one());
    let mut watches = JoinSet::new();
    let mut watching = Watching { client: &client, changed: &changed, tasks: &mut watches };
    let leases = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let mut controllers = Controllers {
        client: client.clone(),
        clock,
        nodes,
        leases: watching.start(leases, &shutdown),
        pods: watching.everywhere(&shutdown),
        deployments: watching.everywhere(&shutdown),
        replica_sets: watching.everywhere(&shutdown),
        daemon_sets: watching.everywhere(&shutdown),
        jobs: watching.everywhere(&shutdown),
        services: watching.everywhere(&shutdown),
        endpoints: watching.everywhere(&shutdown),
        slices: watching.everywhere(&shutdown),
        heartbeats: Heartbeats::default(),
        written: BTreeMap::new(),
    };
    tokio::select! {
        () = shutdown.requested() => {}
        () = controllers.follow(&changed) => {}
    }
    watches.join_all().await;
}

/// Starts the watches.
struct Watching<'w> {
    client: &'w Client,
    changed: &'w Arc<Notify>,
    tasks: &'w mut JoinSet<()>,
}

impl Watching<'_> {
    fn everywhere<K: Object>(&mut self, shutdown: &Shutdown) -> Arc<Cache<K>> {
        self.start(Api::all(self.client.clone()), shutdown)
    }

    fn start<K: Object>(&mut self, api: Api<K>, shutdown: &Shutdown) -> Arc<Cache<K>> {
        let cache = Arc::new(Cache::<K>::new(trim::metadata));
        let notify = Arc::clone(self.changed);
        cache.on_change(move |_| notify.notify_one());
        let (kept, shutdown) = (Arc::clone(&cache), shutdown.clone());
        self.tasks.spawn(async move { kept.run(api, Config::default(), &shutdown).await });
        cache
    }
}

impl Controllers {
    async fn follow(&mut self, changed: &Notify) {
        tokio::join!(
            self.nodes.ready(),
            self.leases.ready(),
            self.pods.ready(),
            self.deployments.ready(),
            self.replica_sets.ready(),
            self.daemon_sets.ready(),
            self.jobs.ready(),
            self.services.ready(),
            self.endpoints.ready(),
            self.slices.ready(),
        );
        loop {
            let is_complete = self.pass().await;
            let has_ending = self.pods.list().iter().any(|pod| pod_status::is_ending(pod));
            let pause = match (is_complete, has_ending) {
                (false, _) => RETRY,
                (true, true) => SHORT_RESYNC,
                (true, false) => RESYNC,
            };
            tokio::select! {
                () = changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Runs every controller once. Returns false if one failed.
    async fn pass(&mut self) -> bool {
        let mut is_complete = true;
        let mut note = |controller: &str, outcome: Result<(), CallError>| {
            if let Err(error) = outcome {
                warn!(controller, error = report::chain(&error), "Failed to reconcile");
                is_complete = false;
            }
        };
        let lifecycle = self.node_lifecycle().await;
        if lifecycle.is_err() {
            // While the API server is lost, heartbeats cannot arrive.
            self.heartbeats = Heartbeats::default();
        }
        note("node lifecycle", lifecycle);
        note("pod garbage collection", self.collect_pods().await);
        for deployment in self.deployments.list() {
            note("deployment", self.deployment(&deployment).await);
        }
        for set in self.replica_sets.list() {
            note("replica set", self.replica_set(&set).await);
        }
        for set in self.daemon_sets.list() {
            note("daemon set", self.daemon_set(&set).await);
        }
        for job in self.jobs.list() {
            note("job", self.job(&job).await);
        }
        note("scheduler", self.schedule().await);
        note("kubelets", self.pod_statuses().await);
        for service in self.services.list() {
            note("endpoints", self.service(&service).await);
        }
        note("endpoints", self.collect_endpoints().await);
        is_complete
    }

    /// Returns the objects of a namespace.
    fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Object + kube::Resource<Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
