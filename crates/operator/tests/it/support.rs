//! The operator in a cluster of its own, and waits for the objects that it writes.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Resource,
    runtime::wait::{Condition as _, conditions},
};
use mco_api::ClusterOperator;
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::{Health, Shutdown, lease::LeadershipEnd};
use mco_core::render::Build;
use mco_operator::{Config, RootCa};
use mco_testkit::object_wait;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

/// Longer than any wait on a busy machine; a wait that takes this long means a bug.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(5);

/// Time between two looks at the health of a process.
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits for a state of the ClusterOperator.
pub(crate) async fn wait(
    client: &Client,
    what: &str,
    holds: impl Fn(&ClusterOperator) -> bool,
) -> ClusterOperator {
    // The kind cannot be watched before the operator has installed it.
    established(client, "clusteroperators.config.openshift.io").await;
    let api = Api::<ClusterOperator>::all(client.clone());
    let condition = |found: Option<&ClusterOperator>| found.is_some_and(&holds);
    wait_for(&api, "machine-config", what, condition).await.unwrap()
}

/// Waits until the API server serves the kind of that definition.
pub(crate) async fn established(client: &Client, definition: &str) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let is_established = |found: Option<&_>| conditions::is_crd_established().matches_object(found);
    wait_for(&definitions, definition, "a served kind", is_established).await;
}

/// Returns a condition as text.
pub(crate) fn condition(operator: &ClusterOperator, kind: &str) -> String {
    let status = operator.status.clone().unwrap_or_default();
    let found = status.conditions.iter().find(|condition| condition.kind == kind);
    found.map_or_else(String::new, |c| format!("{} {}: {}", c.status, c.reason, c.message))
}

/// Waits for a state of an object.
pub(crate) async fn wait_for<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    holds: impl Fn(Option<&K>) -> bool,
) -> Option<K>
where
    K: Resource + Clone + Debug + Send + DeserializeOwned + 'static,
{
    Box::pin(object_wait::wait_until(api.clone(), name, what, holds)).await.unwrap()
}

/// Waits until a process says that it does nothing on purpose, and returns the reason.
pub(crate) async fn idle(health: &Health) -> String {
    let said = async {
        loop {
            if let Some(reason) = health.idle() {
                return reason;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(TIMEOUT, said).await.expect("the operator waits with a reason")
}

/// Returns a client of an empty cluster.
pub(crate) async fn cluster() -> Client {
    Client::new(ApiServer::in_memory(Settings::default()).await.unwrap(), "default")
}

/// Returns the settings of an operator of that build and release.
pub(crate) fn config(version: &str, release: &str) -> Config {
    let build = Build { version: version.to_owned(), hash: format!("hash of {version}") };
    Config { root_ca: RootCa::Fixed("authority".to_owned()), ..Config::new(build, release) }
}

/// A running operator.
pub(crate) struct Operator {
    shutdown: Shutdown,
    running: JoinHandle<LeadershipEnd>,
}

impl Operator {
    pub(crate) fn start(client: &Client, config: &Config) -> Self {
        let shutdown = Shutdown::new();
        let run = mco_operator::run(config.clone(), client.clone(), shutdown.clone());
        Self { shutdown, running: tokio::spawn(run) }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.request();
        let ended = tokio::time::timeout(TIMEOUT, self.running).await;
        ended.expect("the operator stops").unwrap();
    }
}
