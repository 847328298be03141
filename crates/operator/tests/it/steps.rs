//! Steps of a reconcile while the API server rejects or does not answer requests of another step.

use std::{sync::Arc, time::Duration};

use http::{Method, Response, StatusCode};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
    client::Body,
};
use mco_api::{
    ClusterOperator, ControllerConfig, MachineConfigPool, MachineConfiguration,
    cluster_operator::ClusterOperatorSpec, label,
};
use mco_cluster::{Health, client};
use mco_operator::Config;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt as _;

use crate::{
    operands::cluster::{IMAGE, settings},
    support::{Operator, cluster, condition, config, established, idle, wait, wait_for},
};

const POOLS: &str = "/machineconfigpools";
const OPERATORS: &str = "/clusteroperators";
const DAEMON: &str = "/daemonsets/machine-config-daemon";

/// Longer than the longest pause of the operator between two reconciles.
const LONG: Duration = Duration::from_mins(5);

/// A fault of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The request is rejected.
    Rejected,
    /// The request has no answer until the fault is over.
    Unanswered,
}

/// Requests that fail: their methods, the ends of their paths, and their faults.
type Faults = Vec<(Method, &'static str, Fault)>;

/// A cluster whose API server has faults towards the operator.
struct FaultyCluster {
    admin: Client,
    operator: Client,
    faults: Arc<watch::Sender<Faults>>,
}

impl FaultyCluster {
    async fn new(faults: Faults) -> Self {
        let admin = cluster().await;
        let faults = Arc::new(watch::Sender::new(faults));
        let (upstream, known) = (admin.clone(), faults.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (upstream, mut known) = (upstream.clone(), known.subscribe());
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let fault = move |all: &Faults| {
                    let is_it =
                        |it: &&(Method, &str, Fault)| it.0 == method && path.ends_with(it.1);
                    all.iter().find(is_it).map(|(.., fault)| *fault)
                };
                let is_answered = |all: &Faults| fault(all) != Some(Fault::Unanswered);
                let is_rejected =
                    known.wait_for(is_answered).await.map(|all| fault(&all).is_some()).unwrap();
                if is_rejected {
                    return Ok(rejection());
                }
                client::service(upstream).oneshot(request).await
            }
        });
        Self { admin, operator: Client::new(service, "default"), faults }
    }

    /// Replaces the faults.
    fn set(&self, faults: Faults) {
        self.faults.send_replace(faults);
    }

    async fn wait_for_degraded(&self, start: &str) {
        let is_it = |it: &ClusterOperator| condition(it, "Degraded").starts_with(start);
        wait(&self.admin, start, is_it).await;
    }

    /// Waits until the steps that do not need pools have done their work.
    async fn wait_for_other_steps(&self) {
        let (admin, exists) = (&self.admin, "it is created");
        let configs = Api::<ControllerConfig>::all(admin.clone());
        wait_for(&configs, label::CONTROLLER_CONFIG, exists, |it| it.is_some()).await;
        let configurations = Api::<MachineConfiguration>::all(admin.clone());
        wait_for(&configurations, label::CLUSTER, exists, |it| it.is_some()).await;
        let sets = Api::<DaemonSet>::namespaced(admin.clone(), label::NAMESPACE);
        wait_for(&sets, "machine-config-server", exists, |it| it.is_some()).await;
    }

    fn pools(&self) -> Api<MachineConfigPool> {
        Api::all(self.admin.clone())
    }

    async fn count_pools(&self) -> usize {
        self.pools().list(&ListParams::default()).await.unwrap().items.len()
    }

    async fn wait_for_pool(&self) {
        wait_for(&self.pools(), "worker", "it is created", |it| it.is_some()).await;
    }
}

fn rejection() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
        "reason": "Forbidden", "message": "rejected by the test"});
    let body = Body::from(status.to_string().into_bytes());
    Response::builder().status(StatusCode::FORBIDDEN).body(body).unwrap()
}

// covers: O03, O04
#[tokio::test]
async fn no_step_waits_for_another_that_does_not_end() {
    let cluster = FaultyCluster::new(vec![(Method::POST, POOLS, Fault::Unanswered)]).await;
    let operator = Operator::start(&cluster.operator, &settings(IMAGE));
    established(&cluster.admin, "controllerconfigs.machineconfiguration.openshift.io").await;
    established(&cluster.admin, "machineconfigurations.operator.openshift.io").await;
    cluster.wait_for_other_steps().await;
    assert_eq!(cluster.count_pools().await, 0);
    cluster.set(Vec::new());
    cluster.wait_for_pool().await;
    operator.stop().await;
}

// covers: O03
#[tokio::test]
async fn the_first_failed_step_is_reported_and_all_others_do_their_work() {
    let pools = |fault| (Method::POST, POOLS, fault);
    let daemon = (Method::PATCH, DAEMON, Fault::Rejected);
    let cluster = FaultyCluster::new(vec![pools(Fault::Unanswered), daemon.clone()]).await;
    let operator = Operator::start(&cluster.operator, &settings(IMAGE));
    established(&cluster.admin, "controllerconfigs.machineconfiguration.openshift.io").await;
    established(&cluster.admin, "machineconfigurations.operator.openshift.io").await;
    cluster.wait_for_other_steps().await;
    // The pools fail last, and are reported first all the same.
    cluster.set(vec![pools(Fault::Rejected), daemon.clone()]);
    cluster.wait_for_degraded("True MachineConfigPoolsFailed: ").await;
    cluster.set(vec![daemon]);
    cluster.wait_for_degraded("True MachineConfigDaemonFailed: ").await;
    cluster.set(Vec::new());
    cluster.wait_for_degraded("False : ").await;
    operator.stop().await;
}

/// An operator changes nothing before it has the ClusterOperator, and goes on when it has had it. The
/// clock is paused.
#[tokio::test(start_paused = true)]
async fn an_operator_goes_on_without_the_cluster_operator_only_if_it_has_had_it() {
    let rejected = || vec![(Method::POST, OPERATORS, Fault::Rejected)];
    let cluster = FaultyCluster::new(rejected()).await;
    let health = Health::default();
    let config = Config { health: health.clone(), ..config("v1", "4.20.0") };
    let operator = Operator::start(&cluster.operator, &config);
    established(&cluster.admin, "machineconfigpools.machineconfiguration.openshift.io").await;
    tokio::time::sleep(LONG).await;
    assert_eq!(cluster.count_pools().await, 0, "another installation may have the cluster");
    cluster.set(Vec::new());
    cluster.wait_for_pool().await;

    let operators = Api::<ClusterOperator>::all(cluster.admin.clone());
    wait(&cluster.admin, "a status", |it| !condition(it, "Degraded").is_empty()).await;
    cluster.set(rejected());
    operators.delete(label::CLUSTER_OPERATOR, &DeleteParams::default()).await.unwrap();
    cluster.pools().delete("worker", &DeleteParams::default()).await.unwrap();
    cluster.wait_for_pool().await;

    let mut other = ClusterOperator::new(label::CLUSTER_OPERATOR, ClusterOperatorSpec {});
    let annotation = [(label::INSTALLATION_NAMESPACE.to_owned(), "other".to_owned())];
    other.metadata.annotations = Some(annotation.into());
    operators.create(&PostParams::default(), &other).await.unwrap();
    let reason = idle(&health).await;
    assert!(reason.starts_with("the installation in namespace other has"), "{reason}");
    cluster.pools().delete("worker", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(LONG).await;
    assert!(cluster.pools().get_opt("worker").await.unwrap().is_none());
    let found = operators.get(label::CLUSTER_OPERATOR).await.unwrap();
    assert_eq!(
        found.status, None,
        "the ClusterOperator of the other installation is left as it is"
    );
    operator.stop().await;
}
